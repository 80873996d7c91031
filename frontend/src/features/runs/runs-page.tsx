import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { keys, runsQuery } from "@/api/queries";
import type { RunSummary } from "@/api/schema";
import { RUN_COLUMNS } from "@/components/runs/run-columns";
import { Button } from "@/components/ui/button";
import { DataTable } from "@/components/ui/data-table";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { count } from "@/lib/format";
import { useLiveList } from "@/lib/live";
import { NoRuns } from "./empty";
import { formatFilter, type ParsedFilter, parseFilter, toQuery } from "./filter";
import { FilterBar } from "./filter-bar";

const { state, jobOnly, owner, because, strategy, replicas, progress, rate, duration, hosts, created } =
  RUN_COLUMNS;
const COLUMNS = [
  state,
  jobOnly,
  owner,
  because,
  strategy,
  replicas,
  progress,
  rate,
  duration,
  hosts,
  created,
];
const route = getRouteApi("/runs");

/** Every run, newest first: the table is the page. */
export function RunsPage() {
  useLiveList("runs", [keys.runs]);
  const { q, sort } = route.useSearch();
  const navigate = route.useNavigate();
  const filter = parseFilter(q ?? "");
  const runs = useInfiniteQuery({ ...runsQuery(toQuery(filter, sort)), placeholderData: (old) => old });
  const change = (next: ParsedFilter) =>
    void navigate({ search: (old) => ({ ...old, q: formatFilter(next) }), replace: true });
  const turn = () =>
    void navigate({
      search: (old) => ({ ...old, sort: sort === "created" ? undefined : "created" }),
      replace: true,
    });
  const rows = runs.data?.pages.flatMap((page) => page.items);
  return (
    <div className="px-4 py-5 lg:px-6">
      <h1 className="sr-only">Runs</h1>
      <FilterBar filter={filter} oldestFirst={sort === "created"} onChange={change} onTurn={turn} />
      {runs.error && rows && <StaleBanner error={runs.error} since={runs.dataUpdatedAt} />}
      {rows ? (
        <Rows filtered={q !== undefined} rows={rows} />
      ) : runs.error ? (
        <ErrorState
          error={runs.error}
          onRetry={() => void runs.refetch()}
          what="The runs could not be loaded"
        />
      ) : (
        <SkeletonRows label="runs" rows={12} />
      )}
      {rows && rows.length > 0 && (
        <div className="flex items-center gap-4 py-3 text-muted">
          {count(rows.length, "run")} shown
          {runs.hasNextPage && (
            <Button compact disabled={runs.isFetchingNextPage} onClick={() => void runs.fetchNextPage()}>
              {runs.isFetchingNextPage ? "Loading" : "Load more"}
            </Button>
          )}
        </div>
      )}
    </div>
  );
}

function Rows({ rows, filtered }: { rows: readonly RunSummary[]; filtered: boolean }) {
  const navigate = route.useNavigate();
  if (rows.length === 0) return <NoRuns filtered={filtered} />;
  return (
    <DataTable
      columns={COLUMNS}
      keyboard
      label="Runs"
      onRowClick={(run) => void navigate({ to: "/runs/$runId/metrics", params: { runId: run.id } })}
      rowKey={(run) => run.id}
      rows={rows}
      twoLines
    />
  );
}
