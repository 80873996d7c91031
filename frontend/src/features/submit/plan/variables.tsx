import type { PlannedVariable, ProbedProgram } from "@/api/schema";
import { PlanTable } from "@/components/plan/plan-table";
import { Section } from "@/components/ui/section";
import { count, formatBytes } from "@/lib/format";

const COLUMNS = [{ head: "Name" }, { head: "Type" }, { head: "Copies" }, { head: "One copy", right: true }];

/** The program's variables and where their copies would live. */
export function PlannedVariables({ program, devices }: { program: ProbedProgram; devices: number }) {
  const { variables } = program;
  const bytes = variables.reduce((sum, one) => sum + one.size_bytes, 0);
  const rows = variables.map((one) => ({
    key: one.name,
    cells: [
      <span className="font-mono text-xs" key="name">
        {one.name}
      </span>,
      <span className="font-mono text-xs" key="type">
        {one.dtype}[{one.shape.join(", ")}]
      </span>,
      homesText(one.homes, devices),
      formatBytes(one.size_bytes),
    ],
  }));
  const note =
    rows.length > 0 ? `${count(rows.length, "variable")}, one copy of all ${formatBytes(bytes)}` : undefined;
  return (
    <Section note={note} title="Variables">
      {rows.length > 0 ? (
        <PlanTable caption="Variables and their homes" columns={COLUMNS} rows={rows} />
      ) : (
        <p className="pt-3 text-muted">The program makes no variable under the strategy’s scope.</p>
      )}
    </Section>
  );
}

function homesText(homes: PlannedVariable["homes"], devices: number): string {
  if (homes.length === 1) return homes[0] === "host" ? "host memory" : `device ${homes[0]}`;
  return homes.length === devices ? `×${devices}, every device` : `×${homes.length} of ${devices}`;
}
