import type { PlannedBatch, ProbedProgram } from "@/api/schema";
import { PlanTable } from "@/components/plan/plan-table";
import { Section } from "@/components/ui/section";
import { count, formatInteger } from "@/lib/format";
import { placeText } from "./place";

const COLUMNS = [
  { head: "First in step" },
  { head: "Rows per replica" },
  { head: "Rows in all", right: true },
  { head: "Executor" },
];

/** Which rows each replica gets, the ragged end too. */
export function Batches({ program }: { program: ProbedProgram }) {
  const rows = program.batches.map((batch, i) => ({
    key: `${i} ${batch.executor}`,
    cells: [
      placeText(batch),
      rowsText(batch.rows),
      formatInteger(batch.rows.reduce((sum, one) => sum + one, 0)),
      batch.executor,
    ],
  }));
  return (
    <Section note={noteOf(program.batches)} title="Batch per replica">
      {rows.length > 0 ? (
        <PlanTable caption="Rows per replica" columns={COLUMNS} rows={rows} />
      ) : (
        <p className="pt-3 text-muted">The steps took no batch that is divided over the replicas.</p>
      )}
      {program.inputs.map(({ text }) => (
        <p className="whitespace-pre-line pt-2 text-muted text-xs" key={text}>
          {text}
        </p>
      ))}
    </Section>
  );
}

/** `8 × 32`, or `7 × 20 + 17` where they differ. */
export function rowsText(rows: readonly number[]): string {
  const runs: [size: number, times: number][] = [];
  for (const size of rows) {
    const last = runs.at(-1);
    if (last?.[0] === size) last[1] += 1;
    else runs.push([size, 1]);
  }
  return runs.map(([size, times]) => (times === 1 ? `${size}` : `${times} × ${size}`)).join(" + ");
}

function noteOf(batches: readonly PlannedBatch[]): string | undefined {
  const ragged = batches.filter(({ rows }) => new Set(rows).size > 1);
  return ragged.length > 0 ? `${count(ragged.length, "ragged batch", "ragged batches")}` : undefined;
}
