import type { ProbedProgram } from "@/api/schema";
import { Section } from "@/components/ui/section";
import { count, formatBytes } from "@/lib/format";
import { PlanTable } from "./plan-table";

type ChipPlan = NonNullable<ProbedProgram["chips"]>;
type ChipProgram = ChipPlan["programs"][number];

const MEMORY = [
  { head: "Arguments", right: true },
  { head: "Outputs", right: true },
  { head: "Temporary", right: true },
  { head: "Code", right: true },
  { head: "Peak", right: true },
];
const LARGEST = [{ head: "Largest" }, { head: "Type" }, { head: "Per device", right: true }];
const EXCHANGES = [
  { head: "Exchange as compiled" },
  { head: "Bytes", right: true },
  { head: "Groups" },
  { head: "Name" },
];

/** What the compiler of chips that need not be there says of the program: the verdict first. */
export function Chips({ chips }: { chips: ChipPlan }) {
  const { stopped, batch } = chips;
  return (
    <div data-testid="chips">
      <p className={chips.fits ? "pt-3 text-ok" : "pt-3 text-bad"} role="status">
        {chips.fits ? "It fits" : "It does not fit"} {chips.slice}.
      </p>
      <p className="text-muted text-xs">
        {count(chips.devices, "device")} of {chips.kind}
        {chips.available_bytes != null && `, ${formatBytes(chips.available_bytes)} to use on each`}; by{" "}
        {chips.compiler}.
      </p>
      {batch && (
        <p className="pt-2">
          {batch.largest == null
            ? `No ${batch.parameter} that was tried fits.`
            : `The largest ${batch.parameter} that fits is ${batch.largest}.`}
          {batch.too_large != null && ` ${batch.too_large} does not.`}
        </p>
      )}
      {stopped && (
        <p className="break-words pt-2 text-warn">
          The plan ends at {stopped.file}:{stopped.line}: {stopped.why}. <code>{stopped.code}</code>
        </p>
      )}
      {chips.programs.map((program) => (
        <ProgramOnChips key={program.first_call} program={program} />
      ))}
    </div>
  );
}

function ProgramOnChips({ program }: { program: ChipProgram }) {
  const { memory } = program;
  const needed = program.needed_bytes ?? program.argument_bytes;
  const note = program.fits
    ? `compiled in ${program.seconds.toFixed(1)} s`
    : `needs ${formatBytes(needed)} on each device${program.gross ? " for its arguments alone" : ""}`;
  const sizes = memory && [memory.argument, memory.output, memory.temp, memory.code, memory.peak];
  return (
    <Section note={note} title={`Program from call ${program.first_call}`}>
      {sizes && (
        <PlanTable
          caption="Memory per device"
          columns={MEMORY}
          rows={[{ key: "memory", cells: sizes.map((size) => formatBytes(size)) }]}
        />
      )}
      <PlanTable
        caption="What takes most memory"
        columns={LARGEST}
        rows={program.largest.map((one, i) => ({
          key: `${i} ${one.name}`,
          cells: [one.name, `${one.dtype}[${one.shape.join(", ")}]`, formatBytes(one.size_bytes)],
        }))}
      />
      <PlanTable
        caption="Exchanges as compiled"
        columns={EXCHANGES}
        rows={program.exchanges.map((one, i) => ({
          key: `${i} ${one.name}`,
          cells: [one.kind, formatBytes(one.size_bytes), `${one.groups} of ${one.group_size}`, one.name],
        }))}
      />
    </Section>
  );
}
