import type { ReductionName } from "@/api/schema";
import { IconButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { formatInteger } from "@/lib/format";
import { useShortcut } from "@/lib/shortcuts";
import { nearestStep, stepBeside } from "./names";

interface StepScrubberProps {
  name: ReductionName;
  step: number;
  /** The newest step is followed. */
  following: boolean;
  /** More steps may come. */
  live: boolean;
  onStep: (step: number) => void;
  onFollow: (follow: boolean) => void;
}

/** A ruler over the recorded steps: a tick each, longer and marked where the replicas' counts differ. */
export function StepScrubber({ name, step, following, live, onStep, onFollow }: StepScrubberProps) {
  const { steps } = name;
  const [first, last] = [steps[0] ?? 0, steps.at(-1) ?? 0];
  const [before, after] = [stepBeside(steps, step, -1), stepBeside(steps, step, 1)];
  const ragged = new Set(name.ragged_steps);
  const go = (next: number | null) => next !== null && onStep(next);
  useShortcut({ keys: "[", meaning: "Previous recorded step", group: "Run" }, () => go(before));
  useShortcut({ keys: "]", meaning: "Next recorded step", group: "Run" }, () => go(after));
  return (
    <div className="flex items-center gap-3" data-testid="step-scrubber">
      <span className="w-28 shrink-0">
        <span className="text-muted">step</span> <strong className="text-md">{formatInteger(step)}</strong>
        {ragged.has(step) && <span className="block text-2xs text-warn">◇ ragged</span>}
      </span>
      <IconButton disabled={before === null} label="Previous recorded step" onClick={() => go(before)}>
        <Icon className="rotate-180" name="right" size={14} />
      </IconButton>
      <div className="relative h-10 min-w-0 flex-1">
        <Ticks first={first} last={last} ragged={ragged} step={step} steps={steps} />
        <input
          aria-label="Step"
          aria-valuetext={`step ${step}${ragged.has(step) ? ", ragged" : ""}`}
          className="absolute inset-0 w-full cursor-pointer opacity-0"
          disabled={steps.length < 2}
          max={last}
          min={first}
          onChange={(event) => go(nearestStep(steps, Number(event.target.value)))}
          onKeyDown={(event) => {
            const by = BY_KEY[event.key];
            if (!by) return;
            event.preventDefault();
            go(stepBeside(steps, step, by));
          }}
          type="range"
          value={step}
        />
      </div>
      <IconButton disabled={after === null} label="Next recorded step" onClick={() => go(after)}>
        <Icon name="right" size={14} />
      </IconButton>
      <button
        aria-pressed={following}
        className="h-7 shrink-0 rounded-control border border-line-strong px-2.5 text-xs hover:bg-hover aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent"
        onClick={() => onFollow(!following)}
        type="button"
      >
        {live ? "Follow latest" : "Latest"}
      </button>
    </div>
  );
}

const BY_KEY: Record<string, -1 | 1> = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };

interface TicksProps {
  steps: readonly number[];
  ragged: ReadonlySet<number>;
  first: number;
  last: number;
  step: number;
}

function Ticks({ steps, ragged, first, last, step }: TicksProps) {
  const at = (each: number) => (last > first ? ((each - first) / (last - first)) * 100 : 50);
  const path = (some: readonly number[], top: number) =>
    some.map((each) => `M${at(each)} ${top}V20`).join("");
  return (
    <div aria-hidden="true" className="pointer-events-none absolute inset-x-1 inset-y-0">
      <svg
        aria-hidden="true"
        className="h-full w-full overflow-visible"
        preserveAspectRatio="none"
        viewBox="0 0 100 40"
      >
        <path d="M0 20H100" stroke="var(--line-strong)" vectorEffect="non-scaling-stroke" />
        <path d={path(steps, 13)} stroke="var(--line-strong)" vectorEffect="non-scaling-stroke" />
        <path
          d={path([...ragged], 8)}
          stroke="var(--warn)"
          strokeWidth="2"
          vectorEffect="non-scaling-stroke"
        />
        <path
          d={`M${at(step)} 4V26`}
          stroke="var(--accent)"
          strokeWidth="2"
          vectorEffect="non-scaling-stroke"
        />
      </svg>
      <span className="absolute bottom-0 left-0 text-2xs text-muted">{formatInteger(first)}</span>
      {last > first && (
        <span className="absolute right-0 bottom-0 text-2xs text-muted">{formatInteger(last)}</span>
      )}
    </div>
  );
}
