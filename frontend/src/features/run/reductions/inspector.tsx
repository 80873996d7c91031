import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Reduction, ReductionName, ReductionSummary } from "@/api/schema";
import { CopyButton } from "@/components/ui/copy-button";
import { EmptyState, ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { formatInteger, formatNumber } from "@/lib/format";
import { reductionQuery, reductionsAtQuery } from "../queries";
import { shapeText } from "./arithmetic";
import { ManyReplicas } from "./many-replicas";
import { numpySnippet } from "./numpy";
import { ReduceColumn } from "./reduce-column";
import { ReplicaRows } from "./replica-rows";
import { ResultColumn } from "./result-column";
import { axisLabel, viewOf } from "./view-model";
import { WholeReplay } from "./whole-replay";

/** Up to so many replicas have a row each. */
const MOST_ROWS = 32;

interface InspectorProps {
  runId: string;
  name: ReductionName;
  step: number;
  /** One attempt's; without it the run's, as it counts. */
  attempt: string | undefined;
  /** Which one of several at this step, from 1. */
  nth: number;
  onNth: (nth: number) => void;
}

/** One reduction: what each replica put in, how it was combined, what came out. */
export function Inspector({ runId, name, step, attempt, nth, onNth }: InspectorProps) {
  const found = useQuery(reductionsAtQuery(runId, name.name, step, attempt));
  const here = found.data?.filter((each) => each.origin === name.origin) ?? [];
  const summary = here[Math.min(nth, here.length) - 1];
  const whole = useQuery({
    ...reductionQuery(runId, summary?.id ?? ""),
    enabled: summary !== undefined,
    placeholderData: keepPreviousData,
  });
  const error = found.error ?? whole.error;
  if (error) {
    return (
      <ErrorState
        error={error}
        onRetry={() => void found.refetch()}
        what={`Step ${step} could not be loaded`}
      />
    );
  }
  if (found.data && !summary) {
    return (
      <EmptyState title={`${name.name} was not recorded at step ${formatInteger(step)}.`}>
        Choose a step on the ruler.
      </EmptyState>
    );
  }
  if (!whole.data) return <SkeletonRows label="the reduction" rows={8} />;
  return (
    <div>
      {here.length > 1 && <Several chosen={Math.min(nth, here.length)} onChoose={onNth} reductions={here} />}
      <ThreeColumns reduction={whole.data} runId={runId} />
    </div>
  );
}

/** One name may stand for several reductions of a step, such as the gradients of all variables. */
function Several({ reductions, chosen, onChoose }: SeveralProps) {
  return (
    <div className="mb-4 flex flex-wrap items-center gap-1" data-testid="several-reductions">
      <span className="pr-2 text-muted">{severalText(reductions)}</span>
      {reductions.map((each, at) => (
        <button
          aria-pressed={at + 1 === chosen}
          className="h-6.5 rounded-control border border-line px-2 text-muted text-xs hover:bg-hover aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent"
          key={each.id}
          onClick={() => onChoose(at + 1)}
          type="button"
        >
          {at + 1} <code>{resultText(each)}</code>
        </button>
      ))}
    </div>
  );
}

/** Its result where that is a number, else its shape. */
function resultText({ result, result_shape: shape }: ReductionSummary): string {
  if (shape.length > 0) return shapeText(shape);
  return result === null ? "scalar" : formatNumber(result);
}

function severalText(reductions: readonly ReductionSummary[]): string {
  const all = Math.max(reductions.length, ...reductions.map(({ of }) => of));
  const listed = all > reductions.length ? `, the first ${formatInteger(reductions.length)} here` : "";
  return `${formatInteger(all)} of this name in this step${listed}:`;
}

interface SeveralProps {
  reductions: readonly ReductionSummary[];
  chosen: number;
  onChoose: (nth: number) => void;
}

function ThreeColumns({ reduction, runId }: { reduction: Reduction; runId: string }) {
  const view = useMemo(() => viewOf(reduction), [reduction]);
  const many = view.inputs.length > MOST_ROWS;
  return (
    <section
      aria-label={`${reduction.name} at step ${reduction.step}`}
      data-axis={reduction.axis === null ? "None" : String(reduction.axis)}
      data-denominator={reduction.denominator ?? ""}
      data-op={reduction.op}
      data-step={reduction.step}
      data-testid="reduction"
    >
      <div className="section-rule">
        <h2 className="truncate font-mono">{reduction.name}</h2>
        <span className="text-muted">
          {reduction.op.toUpperCase()} {axisLabel(reduction.axis)} over {formatInteger(reduction.replicas)}{" "}
          replicas
          {reduction.origin === "in_step" ? ", inside the step" : ""}
          {reduction.of > 1 && `, ${formatInteger(reduction.nth)} of ${formatInteger(reduction.of)}`}
        </span>
        <div className="-mr-2 ml-auto self-center">
          <CopyButton label="Copy as NumPy" text={() => numpySnippet(reduction)} />
        </div>
      </div>
      <div className="grid gap-y-6 pt-4 md:max-wide:grid-cols-2 md:max-wide:gap-x-8 wide:grid-cols-[minmax(0,1fr)_220px_220px]">
        <div className="min-w-0 md:max-wide:col-span-2">
          {many ? <ManyReplicas view={view} /> : <ReplicaRows view={view} />}
        </div>
        <ReduceColumn view={view} />
        <ResultColumn view={view}>
          {view.recomputed.kind === "not_kept" && reduction.whole_bytes != null && (
            <WholeReplay key={reduction.id} reduction={reduction} runId={runId} />
          )}
        </ResultColumn>
      </div>
    </section>
  );
}
