import type { ReactNode } from "react";
import { Icon } from "@/components/ui/icons";
import { formatInteger, formatNumber } from "@/lib/format";
import { type Axis, ownValue, type Tensor } from "./arithmetic";
import { naiveWeights, type ReductionView } from "./view-model";

/** How the parts were combined, with the numbers put in: the right denominator, and beside it the wrong one. */
export function ReduceColumn({ view }: { view: ReductionView }) {
  const { reduction } = view;
  return (
    <div className="min-w-0 wide:pr-5 wide:pl-3">
      <h3 className="mb-2 text-muted text-xs">Reduce</h3>
      <p className="flex items-center gap-2">
        <strong className="text-md">{reduction.op.toUpperCase()}</strong>
        <code className="text-muted">axis={axisText(reduction.axis)}</code>
        <Icon className="ml-auto text-muted max-wide:hidden" name="right" />
      </p>
      <p className="mt-1 text-muted text-xs">{how(view)}</p>
      {view.scalar !== null && <Formula view={view} />}
      {view.recomputed.kind === "shapes_differ" && (
        <p className="mt-3 border-bad border-l-2 pl-3 text-bad text-xs" data-testid="shapes-differ">
          {view.recomputed.sentence}
        </p>
      )}
      <p className="mt-3 text-2xs text-muted">Algorithm not reported.</p>
    </div>
  );
}

function how({ reduction }: ReductionView): string {
  const across = `element by element across ${formatInteger(reduction.replicas)} replicas`;
  if (reduction.axis === null || reduction.axis === undefined) {
    return reduction.op === "sum"
      ? `Added ${across}.`
      : `Added ${across}, divided by the number of replicas.`;
  }
  const over =
    typeof reduction.axis === "number" ? `axis ${reduction.axis}` : `axes ${reduction.axis.join(", ")}`;
  return `Each replica adds over ${over}, then the replicas are added${
    reduction.op === "mean" ? " and divided by the number of elements" : ""
  }.`;
}

function Formula({ view }: { view: ReductionView }) {
  const { reduction, naive, scalar, ragged } = view;
  const total = totalOf(view);
  const wrong = ragged && naive !== null;
  return (
    <div className="mt-3 flex flex-col gap-3">
      <Line mark={<Mark view={view} />} name={wrong ? "right denominator" : "worked out"}>
        <code>
          Σ {total === null ? "?" : formatNumber(total, 6)}
          {reduction.op === "mean" && (
            <>
              {" / "}
              <span data-testid="denominator">{reduction.denominator ?? "?"}</span>
            </>
          )}
          {" = "}
          <span className="font-strong">{formatNumber(scalar, 6)}</span>
        </code>
        {reduction.op === "mean" && reduction.axis !== null && reduction.axis !== undefined && (
          <span className="block text-2xs text-muted">{countsText(reduction.counts)}</span>
        )}
      </Line>
      {wrong && (
        <Line mark={<span className="text-bad">✕</span>} name="mean of means">
          <s className="decoration-bad" data-testid="mean-of-means" data-value={String(naive)}>
            <code>{formatNumber(naive, 6)}</code>
          </s>
          <span className="block text-2xs text-muted">{whyWrong(reduction.counts)}</span>
        </Line>
      )}
      {!ragged && naive !== null && (
        <p className="text-2xs text-muted">
          Every replica holds as many elements, so the mean of means is the same here.
        </p>
      )}
      <WrongAnswers view={view} />
    </div>
  );
}

/** What other mistakes than the mean of means would have given. */
function WrongAnswers({ view: { wrong, naive } }: { view: ReductionView }) {
  const others = wrong.filter(({ value }) => value !== naive);
  if (others.length === 0) return null;
  return (
    <ul className="flex flex-col gap-1 text-2xs text-muted" data-testid="wrong-answers">
      {others.map(({ what, value }) => (
        <li className="grid grid-cols-[16px_1fr] gap-x-1" key={what}>
          <span aria-hidden="true" className="text-bad">
            ✕
          </span>
          <span>
            <s className="decoration-bad">
              <code>{formatNumber(value, 6)}</code>
            </s>{" "}
            {what}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** The check of the arithmetic: no tick for numbers that are none, nor for what does not follow. */
function Mark({ view: { recomputed, notFinite } }: { view: ReductionView }) {
  if (recomputed.kind !== "worked_out") return <span className="text-muted">·</span>;
  if (!recomputed.reproduces) return <span className="text-bad">✕</span>;
  return notFinite > 0 ? <span className="text-warn">⚠</span> : <span className="text-ok">✓</span>;
}

function whyWrong(counts: readonly number[]): string {
  const empty = counts.filter((count) => count === 0).length;
  if (empty > 0)
    return `${formatInteger(empty)} of ${formatInteger(counts.length)} replicas hold no element and have no mean`;
  return `would weigh elements ${naiveWeights(counts)}`;
}

function Line({ mark, name, children }: { mark: ReactNode; name: string; children: ReactNode }) {
  return (
    <div className="grid grid-cols-[16px_1fr] gap-x-1">
      <span aria-hidden="true">{mark}</span>
      <div>
        <p className="text-muted text-xs">{name}</p>
        {children}
      </div>
    </div>
  );
}

/** The sum before the division, from the values themselves. */
function totalOf({ inputs, reduction }: ReductionView): number | null {
  const tensors = inputs.flatMap((input) => (input.tensor ? [input.tensor] : []));
  if (tensors.length < inputs.length) return null;
  return tensors.reduce((sum, tensor) => sum + partialSum(tensor, reduction.axis), 0);
}

function partialSum(tensor: Tensor, axis: Axis): number {
  return ownValue(tensor, "sum", axis).values.reduce((sum, value) => sum + value, 0);
}

/** `4 + 2 elements`; for many replicas with few distinct counts `7 × 32 + 1 × 5 elements`. */
function countsText(counts: readonly number[]): string {
  if (counts.length <= 4) return `${counts.join(" + ")} elements`;
  const times = new Map<number, number>();
  for (const count of counts) times.set(count, (times.get(count) ?? 0) + 1);
  if (times.size > 4) return `${formatInteger(counts.reduce((a, b) => a + b, 0))} elements`;
  return `${[...times].map(([count, n]) => `${n} × ${count}`).join(" + ")} elements`;
}

function axisText(axis: Axis): string {
  if (axis === null || axis === undefined) return "None";
  return typeof axis === "number" ? String(axis) : `(${axis.join(", ")})`;
}
