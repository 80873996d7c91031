import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import type { Ledger, LedgerLine } from "@/api/schema";
import { labelOf } from "@/components/ledger/names";
import { formatCost, formatShare, formatSpent } from "@/components/ledger/shares";
import { Swatch, TimeBar } from "@/components/ledger/time-bar";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { formatDuration } from "@/lib/format";
import { runEndedQuery } from "../queries";
import { ledgerQuery } from "./queries";
import { StepSection } from "./step-section";
import { Timeline } from "./timeline";
import { TracedSteps } from "./traced-steps";

const route = getRouteApi("/runs/$runId/time");

/** Where did its time go? */
export function TimeTab() {
  const { runId } = route.useParams();
  const ended = useQuery(runEndedQuery(runId)).data ?? false;
  const ledger = useQuery(ledgerQuery(runId, ended));
  if (!ledger.data) {
    return ledger.error ? (
      <ErrorState
        error={ledger.error}
        onRetry={() => void ledger.refetch()}
        what="Where the time went could not be loaded"
      />
    ) : (
      <SkeletonRows label="where the time went" rows={6} />
    );
  }
  return (
    <div className="space-y-8">
      {ledger.error && <StaleBanner error={ledger.error} since={ledger.dataUpdatedAt} />}
      <Totals ended={ended} ledger={ledger.data} />
      <StepSection ended={ended} runId={runId} />
      <Timeline ended={ended} runId={runId} total={ledger.data.wall_s} />
      <TracedSteps ended={ended} runId={runId} />
      {ledger.data.places.filter((place) => place.host).length > 1 && <Places ledger={ledger.data} />}
    </div>
  );
}

function Totals({ ledger, ended }: { ledger: Ledger; ended: boolean }) {
  const facts = [
    `${formatDuration(ledger.wall_s)} since its submission`,
    `${formatDuration(ledger.device_s)} of devices`,
    ledger.cost !== null && formatCost(ledger.cost, ledger.currency),
    !ended && "as told so far",
  ];
  return (
    <Section note={facts.filter(Boolean).join(" · ")} title="Where the time went">
      <TimeBar
        className="pt-3 pb-4"
        label="Time by what it went into"
        lines={ledger.lines}
        named
        whole={ledger.wall_s}
      />
      <div data-testid="ledger">
        <DataTable
          columns={columns(ledger)}
          label="Where the time went"
          rowKey={(line) => line.name}
          rows={ledger.lines}
        />
      </div>
    </Section>
  );
}

function columns(ledger: Ledger): Column<LedgerLine>[] {
  const cost: Column<LedgerLine> = {
    id: "cost",
    header: "Cost",
    align: "right",
    cell: (line) => formatCost(line.cost, ledger.currency),
  };
  return [
    {
      id: "name",
      header: "What",
      className: "whitespace-nowrap",
      cell: (line) => (
        <span className="inline-flex items-center gap-2">
          <Swatch name={line.name} />
          {labelOf(line.name)}
        </span>
      ),
    },
    {
      id: "sentence",
      header: <span className="sr-only">What that is</span>,
      className: "w-full text-muted max-md:hidden",
      cell: (line) => line.sentence,
    },
    { id: "time", header: "Time", align: "right", cell: (line) => formatSpent(line.wall_s) },
    { id: "share", header: "Share", align: "right", cell: (line) => formatShare(line.wall_s, ledger.wall_s) },
    {
      id: "device",
      header: "Device time",
      align: "right",
      className: "max-sm:hidden",
      cell: (line) => formatSpent(line.device_s),
    },
    ...(ledger.cost === null ? [] : [cost]),
  ];
}

/** Each host beside the others: its share of the time that passed. */
function Places({ ledger }: { ledger: Ledger }) {
  return (
    <Section title="By host">
      <ul className="space-y-2 pt-3">
        {ledger.places
          .filter((place) => place.host)
          .map((place) => (
            <li
              className="grid grid-cols-[minmax(0,10rem)_1fr_5rem] items-center gap-x-4"
              key={`${place.host} ${place.device_kind}`}
            >
              <span className="truncate">{place.host_name ?? "a host that is gone"}</span>
              <TimeBar label={`Time of ${place.host_name}`} lines={place.lines} whole={place.wall_s} />
              <span className="text-right">{formatDuration(place.wall_s)}</span>
            </li>
          ))}
      </ul>
    </Section>
  );
}
