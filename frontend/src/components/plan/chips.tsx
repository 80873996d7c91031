import type { ProbedProgram } from "@/api/schema";
import { PlanTable } from "@/components/plan/plan-table";
import { Section } from "@/components/ui/section";
import { count, formatBytes, formatInteger, formatNumber } from "@/lib/format";

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
  const { stopped } = chips;
  const verdict = VERDICTS[chips.verdict](chips.slice);
  return (
    <div className="space-y-6 pt-3" data-testid="chips">
      <div className="space-y-2">
        <p className={verdict.tone} role="status">
          {verdict.text}
        </p>
        <p className="text-muted text-xs">
          {count(chips.devices, "device")} of {chips.kind}
          {chips.available_bytes != null && `, ${formatBytes(chips.available_bytes)} to use on each`}; by{" "}
          {chips.compiler}.
        </p>
        <Batch batch={chips.batch} />
        {stopped && (
          <p className="break-words text-warn">
            The plan ends{stopped.file && ` at ${stopped.file}:${stopped.line}`}: {stopped.why}.{" "}
            <code>{stopped.code}</code>
          </p>
        )}
      </div>
      {chips.programs.map((program) => (
        <ProgramOnChips key={program.first_call} program={program} />
      ))}
    </div>
  );
}

const VERDICTS: Record<ChipPlan["verdict"], (slice: string) => { text: string; tone: string }> = {
  fits: (slice) => ({ text: `It fits ${slice}.`, tone: "text-ok" }),
  does_not_fit: (slice) => ({ text: `It does not fit ${slice}.`, tone: "text-bad" }),
  not_known: (slice) => ({
    text: `What was compiled fits ${slice}; the rest is not known.`,
    tone: "text-warn",
  }),
};

function Batch({ batch }: { batch: ChipPlan["batch"] }) {
  if (!batch) return null;
  return (
    <p className="break-words">
      {batch.largest == null
        ? `No ${batch.parameter} that was tried fits.`
        : `The largest ${batch.parameter} that fits is ${formatInteger(batch.largest)}.`}
      {batch.too_large != null && ` ${formatInteger(batch.too_large)} does not.`}
      {batch.ended && <span className="text-muted"> {batch.ended}</span>}
    </p>
  );
}

function ProgramOnChips({ program }: { program: ChipProgram }) {
  const { memory } = program;
  const sizes = memory && [memory.argument, memory.output, memory.temp, memory.code, memory.peak];
  return (
    <Section note={noteOf(program)} title={titleOf(program)}>
      <div className="space-y-5">
        {program.message && (
          <p className="break-words pt-3 text-muted text-xs">
            {program.fits && "What is exchanged is not known: "}
            {program.message}
          </p>
        )}
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
        {program.exchanges.length > 0 && <Exchanges program={program} />}
        <Cost program={program} />
      </div>
    </Section>
  );
}

function titleOf({ first_call: call, steps }: ChipProgram): string {
  return `Program from call ${call}${steps > 1 ? `, ${count(steps, "step")} at once` : ""}`;
}

function noteOf(program: ChipProgram): string {
  if (program.fits) return `compiled in ${program.seconds.toFixed(1)} s`;
  const needed = formatBytes(program.needed_bytes ?? program.argument_bytes);
  return `needs ${needed} on each device${program.gross ? " for its arguments alone" : ""}`;
}

function Exchanges({ program }: { program: ChipProgram }) {
  const { exchanges, exchange_count: all } = program;
  return (
    <div>
      <PlanTable
        caption="Exchanges as compiled"
        columns={EXCHANGES}
        rows={exchanges.map((one, i) => ({
          key: `${i} ${one.name}`,
          cells: [one.kind, formatBytes(one.size_bytes), groupsText(one), one.name],
        }))}
      />
      {all > exchanges.length && (
        <p className="pt-2 text-muted text-xs">
          {formatInteger(all)} in all; the first {exchanges.length} are listed.
        </p>
      )}
    </div>
  );
}

/** The compiler names no groups where all devices exchange in one. */
function groupsText({ groups, group_size: size }: ChipProgram["exchanges"][number]): string {
  return groups === 0 ? "not named" : `${groups} of ${count(size, "device")}`;
}

function Cost({ program }: { program: ChipProgram }) {
  const { flops, bytes_accessed: bytes, optimal_s: seconds } = program;
  const parts = [
    flops != null && `${formatNumber(flops)} FLOPs`,
    bytes != null && `${formatBytes(bytes)} read and written`,
    seconds != null && `${formatNumber(seconds)} s at best`,
  ].filter(Boolean);
  if (parts.length === 0) return null;
  return (
    <p className="text-muted text-xs">
      By the compiler’s own model a step takes {parts.join(", ")} on each device; nothing was measured.
    </p>
  );
}
