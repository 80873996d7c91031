import type { ProbedProgram } from "@/api/schema";
import { PlanTable } from "@/components/plan/plan-table";
import { Section } from "@/components/ui/section";
import { count, formatBytes } from "@/lib/format";
import { placeText } from "./place";

const COLUMNS = [
  { head: "Exchange" },
  { head: "Op" },
  { head: "Type" },
  { head: "Each puts in", right: true },
  { head: "Times a call", right: true },
  { head: "From step", right: true },
];

/** What the replicas exchange, and how many bytes each of them puts in. */
export function Collectives({ program }: { program: ProbedProgram }) {
  const { collectives } = program;
  const start = Math.min(...collectives.map((one) => one.first_step));
  const first = collectives.filter((one) => one.first_step === start);
  const bytes = first.reduce((sum, one) => sum + one.size_bytes * (one.times ?? 1), 0);
  const rows = collectives.map((one, i) => ({
    key: `${i} ${one.name}`,
    cells: [
      <span className="font-mono text-xs" key="name">
        {one.name}
      </span>,
      one.op ?? "–",
      <span className="font-mono text-xs" key="type">
        {one.dtype}[{one.shape.join(", ")}]
      </span>,
      formatBytes(one.size_bytes),
      one.times ?? "varies",
      placeText(one),
    ],
  }));
  const note =
    collectives.length > 0
      ? `${count(first.length, "exchange")} in step ${start}, ${formatBytes(bytes)} from each replica`
      : undefined;
  return (
    <Section note={note} title="Exchanges">
      {rows.length > 0 ? (
        <PlanTable caption="Exchanges between replicas" columns={COLUMNS} rows={rows} />
      ) : (
        <p className="pt-3 text-muted">The replicas exchange nothing.</p>
      )}
    </Section>
  );
}
