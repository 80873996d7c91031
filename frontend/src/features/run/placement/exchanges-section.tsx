import type { Exchanges, Placement, ProgramExchanges } from "@/api/schema";
import { PlanTable } from "@/components/plan/plan-table";
import { Section } from "@/components/ui/section";
import { count, formatBytes, formatInteger } from "@/lib/format";
import { bytesText, crossesHosts, crossingText, exchangeName } from "./exchanges";

const TOTALS = [
  { head: "Exchange" },
  { head: "Joins" },
  { head: "In the program", right: true },
  { head: "Times a step", right: true },
  { head: "Payload a step", right: true },
];
const EACH = [
  { head: "Result" },
  { head: "Exchange" },
  { head: "Type" },
  { head: "Joins" },
  { head: "Payload", right: true },
  { head: "Times a step", right: true },
];
const NOT_RECORDED: Record<NonNullable<Exchanges["not_recorded"]>, string> = {
  no_step: "No step is dispatched yet.",
  jax: "Not recorded: the program computes with JAX’s own collectives, of which the engine is not told.",
  not_told:
    "Not recorded for this attempt: it dispatched no step by strategy.run, or its worker does not tell.",
};

/** What do the replicas exchange in a step, and what of it crosses between hosts? */
export function ExchangesSection({ placement }: { placement: Placement }) {
  const replicas = new Set(placement.devices.flatMap(({ replica }) => replica ?? []));
  if (replicas.size < 2) return null;
  const hosts = new Set(placement.devices.map(({ host }) => host)).size;
  const { not_recorded: why, programs, more_programs: more } = placement.exchanges;
  const crossing = crossingText(placement);
  const note = crossing || (crossesHosts(placement) === false && hosts > 1 ? "nothing crosses" : undefined);
  return (
    <Section
      note={note}
      title={hosts > 1 ? "What crosses between hosts, a step" : "What replicas exchange, a step"}
    >
      {why ? (
        <p className="max-w-3xl py-3 text-muted">{NOT_RECORDED[why]}</p>
      ) : (
        <div className="flex flex-col gap-6 pt-3" data-testid="exchanges">
          {programs.map((program) => (
            <Program isOnly={programs.length === 1} key={program.digest} program={program} />
          ))}
          <p className="max-w-3xl text-pretty text-muted text-xs">
            {more > 0 && `${count(more, "further program")} not shown. `}
            Payload is what one replica puts in, before what the algorithm of the collective itself sends for
            it. Reductions outside of steps, and what XLA adds where values are split over logical devices,
            are not counted.
          </p>
        </div>
      )}
    </Section>
  );
}

function Program({ program, isOnly }: { program: ProgramExchanges; isOnly: boolean }) {
  const { name, totals, exchanges, more } = program;
  const largest = exchanges.toSorted((a, b) => (b.bytes_per_step ?? -1) - (a.bytes_per_step ?? -1));
  return (
    <div className="flex flex-col gap-4">
      {!isOnly && <h3 className="font-mono text-xs">{name}</h3>}
      {totals.length === 0 ? (
        <p className="text-muted">Its replicas exchange nothing.</p>
      ) : (
        <PlanTable
          caption={`What ${name} exchanges in a step, by kind`}
          columns={TOTALS}
          rows={totals.map((total) => ({
            key: `${total.kind} ${total.op} ${total.crosses_hosts}`,
            cells: [
              exchangeName(total),
              joins(total.crosses_hosts),
              formatInteger(total.operations),
              total.varying > 0
                ? `${formatInteger(total.times)} and as values say`
                : formatInteger(total.times),
              bytesText(total),
            ],
          }))}
        />
      )}
      {exchanges.length > 0 && (
        <PlanTable
          caption={`Each exchange of ${name}, the largest first`}
          columns={EACH}
          rows={largest.map((one, i) => ({
            key: `${i} ${one.name}`,
            cells: [
              <span className="font-mono text-xs" key="name">
                {one.name}
              </span>,
              exchangeName(one),
              <span className="font-mono text-xs" key="type">
                {one.dtype}[{one.shape.join(", ")}]
              </span>,
              joins(one.crosses_hosts),
              formatBytes(one.size_bytes),
              one.times ?? "varies",
            ],
          }))}
        />
      )}
      {more > 0 && (
        <p className="text-muted text-xs">{count(more, "further exchange")}, counted above, not listed.</p>
      )}
    </div>
  );
}

const joins = (crosses: boolean) => (crosses ? "hosts" : "within a host");
