import { infiniteQueryOptions, useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import { keys } from "@/api/queries";
import type { LedgerSum } from "@/api/schema";
import { NAMES } from "@/components/ledger/names";
import { formatCost, formatShare } from "@/components/ledger/shares";
import { Legend, TimeBar } from "@/components/ledger/time-bar";
import { Button } from "@/components/ui/button";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Segmented } from "@/components/ui/segmented";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { formatDuration, formatInteger } from "@/lib/format";
import { useLiveList } from "@/lib/live";
import { BY, DAYS } from "./search";

const route = getRouteApi("/usage");
const DAY_MS = 86_400_000;
const LABELS = { owner: "Owner", host: "Host", project: "Project" };

function sumsQuery(by: (typeof BY)[number], days: number) {
  return infiniteQueryOptions({
    queryKey: [...keys.runs, "usage", by, days] as const,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/ledger", {
          params: {
            query: { by, from: new Date(Date.now() - days * DAY_MS).toISOString(), cursor: pageParam },
          },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
  });
}

/** What did the time of ended runs go into, and whose was it? */
export function UsagePage() {
  useLiveList("runs", [[...keys.runs, "usage"]]);
  const { by = "owner", days = "30" } = route.useSearch();
  const navigate = useNavigate({ from: "/usage" });
  const sums = useInfiniteQuery(sumsQuery(by, Number(days)));
  const rows = sums.data?.pages.flatMap((page) => page.items);
  return (
    <div className="px-4 py-5 lg:px-6">
      <h1 className="mb-4 text-lg">Usage</h1>
      <div className="mb-5 flex flex-wrap items-center gap-x-6 gap-y-3">
        <Segmented
          choices={BY.map((value) => ({ value, label: LABELS[value] }))}
          label="By"
          onChange={(value) => void navigate({ search: { by: value, days }, replace: true })}
          value={by}
        />
        <Segmented
          choices={DAYS.map((value) => ({ value, label: value === "1" ? "a day" : `${value} days` }))}
          label="Ended in the last"
          onChange={(value) => void navigate({ search: { by, days: value }, replace: true })}
          value={days}
        />
      </div>
      {sums.error && rows && <StaleBanner error={sums.error} since={sums.dataUpdatedAt} />}
      {!rows && sums.error && (
        <ErrorState
          error={sums.error}
          onRetry={() => void sums.refetch()}
          what="The usage could not be loaded"
        />
      )}
      {!rows && !sums.error && <SkeletonRows label="the usage" rows={4} />}
      {rows && rows.length === 0 && (
        <EmptyState title="No run has ended in this time.">
          A run counts here from its end on; of one that is running its own page says where the time goes.
        </EmptyState>
      )}
      {rows && rows.length > 0 && <Sums by={by} rows={rows} />}
      {sums.hasNextPage && (
        <Button
          className="mt-3"
          compact
          disabled={sums.isFetchingNextPage}
          onClick={() => void sums.fetchNextPage()}
        >
          Show more
        </Button>
      )}
    </div>
  );
}

/** Time in which devices were held: what no device waited for is not in its bar. */
function Sums({ by, rows }: { by: (typeof BY)[number]; rows: readonly LedgerSum[] }) {
  const longest = Math.max(...rows.map((row) => row.device_s));
  const used = new Set(
    rows.flatMap((row) => row.lines.filter((line) => line.device_s > 0).map(({ name }) => name)),
  );
  const columns: Column<LedgerSum>[] = [
    { id: "key", header: LABELS[by], className: "whitespace-nowrap", cell: (row) => row.label },
    {
      id: "bar",
      header: <span className="sr-only">What it went into</span>,
      className: "w-full max-sm:hidden",
      cell: (row) =>
        row.device_s > 0 && (
          <div style={{ width: `${Math.max(1, (100 * row.device_s) / longest)}%` }}>
            <TimeBar
              label={`Device time of ${row.label}`}
              lines={row.lines}
              of="device_s"
              whole={row.device_s}
            />
          </div>
        ),
    },
    { id: "device", header: "Device time", align: "right", cell: deviceTime },
    { id: "steps", header: "In steps", align: "right", cell: inSteps },
    { id: "wall", header: "Time", align: "right", cell: (row) => formatDuration(row.wall_s) },
    { id: "runs", header: "Runs", align: "right", cell: (row) => formatInteger(row.runs) },
    ...(rows.some((row) => row.cost !== null) ? [COST] : []),
  ];
  return (
    <div className="space-y-4" data-testid="usage">
      <Legend className="max-sm:hidden" names={NAMES.filter((name) => used.has(name))} />
      <DataTable columns={columns} label="Usage" rowKey={(row) => row.key} rows={rows} />
    </div>
  );
}

const COST: Column<LedgerSum> = {
  id: "cost",
  header: "Cost",
  align: "right",
  cell: (row) => formatCost(row.cost, row.currency),
};

function deviceTime(row: LedgerSum) {
  return <span className="whitespace-nowrap">{formatDuration(row.device_s)}</span>;
}

function inSteps(row: LedgerSum) {
  const steps = row.lines.find((line) => line.name === "steps")?.device_s ?? 0;
  return <span className="whitespace-nowrap">{formatShare(steps, row.device_s)}</span>;
}
