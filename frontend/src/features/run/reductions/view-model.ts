import type { ArraySummary, Reduction } from "@/api/schema";
import { type HeatBucket, type HeatScale, heatScale } from "@/components/charts/heat-strip";
import { type Scale, scaleOver } from "@/components/charts/scale";
import { fromWire } from "@/lib/wire-numbers";
import { meanOfMeans, ownValue, type Recomputed, recompute, type Tensor, tensorOf } from "./arithmetic";
import { type Replay, replayOf, type WrongAnswer, wrongAnswers } from "./replay";
import { type Spread, spreadOf, stripOf } from "./statistics";

/** One replica's part in a reduction. */
export interface ReplicaInput {
  replica: number;
  summary: ArraySummary;
  /** All its values, where they were kept. */
  tensor: Tensor | null;
  /** Its array as a strip, where it is long; `null` also where neither values nor a strip were kept. */
  strip: HeatBucket[] | null;
  /** Elements it contributes along the axis. */
  count: number;
  /** The one number it says by itself, where the result is a scalar. */
  own: number | null;
}

/** A reduction with everything that the three columns show. */
export interface ReductionView {
  reduction: Reduction;
  inputs: ReplicaInput[];
  result: Tensor | null;
  /** The result where it is a scalar. */
  scalar: number | null;
  recomputed: Recomputed;
  /** The result beside the one that follows from the inputs, where these were kept. */
  replay: Replay | null;
  /** What usual mistakes would have given, where that is another number. */
  wrong: WrongAnswer[];
  /** What averaging the replicas' own means would give; only for a mean over an axis with a scalar result. */
  naive: number | null;
  /** How many of the numbers, put in or come out, are NaN or infinite. */
  notFinite: number;
  /** The counts differ, so that the mean of means is another number. */
  ragged: boolean;
  scale: Scale | null;
  heat: HeatScale | null;
  spread: Spread | null;
  /** Whether the result is a large array, whose parts have norms and directions. */
  isArray: boolean;
}

/** Arrays up to this length are written out; longer ones are strips. */
const MOST_WRITTEN = 6;
const MOST_BUCKETS = 64;

/** The deviation of two or three values says nothing. */
const LEAST_FOR_SPREAD = 4;

export function viewOf(reduction: Reduction): ReductionView {
  const inputs = reduction.inputs.map((summary, replica) => inputOf(reduction, summary, replica));
  const result = tensorOf(reduction.output);
  const isScalar = reduction.output.shape.length === 0;
  const scalar = isScalar ? (result?.values[0] ?? fromWire(reduction.output.mean)) : null;
  const own = inputs.flatMap((input) => (input.own === null ? [] : [input.own]));
  const naive = naiveMean(reduction, inputs, isScalar);
  const marks = [scalar, naive].filter((value) => value !== null);
  return {
    reduction,
    inputs,
    result,
    scalar,
    recomputed: recompute(reduction),
    replay: replayOf(reduction),
    wrong: wrongAnswers(reduction),
    naive,
    notFinite: [...reduction.inputs, reduction.output].reduce(
      (sum, { nan_count, inf_count }) => sum + (nan_count ?? 0) + (inf_count ?? 0),
      0,
    ),
    ragged: new Set(reduction.counts).size > 1,
    // A sum is far from its parts: only a mean stands on the scale of the replicas' own values.
    scale: isScalar ? scaleOver(reduction.op === "mean" ? [...own, ...marks] : own) : null,
    heat: heatScale([
      ...inputs.flatMap((input) => input.tensor?.values ?? []),
      ...(isScalar ? [] : (result?.values ?? [])),
      ...[...reduction.inputs, reduction.output].flatMap(({ strip }) => [
        ...(strip?.min.flatMap((value) => value ?? []) ?? []),
        ...(strip?.max.flatMap((value) => value ?? []) ?? []),
      ]),
    ]),
    spread: own.length >= LEAST_FOR_SPREAD ? spreadOf(own) : null,
    isArray: !isScalar && reduction.inputs.some((input) => input.shape.reduce((a, b) => a * b, 1) > 1),
  };
}

function inputOf(reduction: Reduction, summary: ArraySummary, replica: number): ReplicaInput {
  const tensor = tensorOf(summary);
  const count = reduction.counts[replica] ?? 1;
  const own = tensor ? ownValue(tensor, reduction.op, reduction.axis) : null;
  const isScalar = reduction.output.shape.length === 0;
  const strip = stripOfArray(summary);
  return { replica, summary, tensor, strip, count, own: isScalar ? (own?.values[0] ?? null) : null };
}

/** An array that is too long to be written out, from its values or as it was recorded. */
export function stripOfArray(summary: ArraySummary): HeatBucket[] | null {
  const values = tensorOf(summary)?.values;
  if (values) return values.length > MOST_WRITTEN ? stripOf(values, MOST_BUCKETS) : null;
  const { strip } = summary;
  if (!strip) return null;
  return strip.min.map((min, at) => ({
    min,
    max: strip.max[at] ?? null,
    notFinite: strip.not_finite?.[at] ?? 0,
  }));
}

function naiveMean(reduction: Reduction, inputs: readonly ReplicaInput[], isScalar: boolean): number | null {
  if (reduction.op !== "mean" || reduction.axis === null || reduction.axis === undefined || !isScalar)
    return null;
  const tensors = inputs.flatMap((input) => (input.tensor ? [input.tensor] : []));
  if (tensors.length < inputs.length) return null;
  return meanOfMeans(tensors, reduction.axis).values[0] ?? null;
}

/** The weight of one element in the mean of means, per distinct count: `1/8 and 1/4` for counts 4 and 2 on two replicas. */
export function naiveWeights(counts: readonly number[]): string {
  const distinct = [...new Set(counts)].filter((count) => count > 0).sort((a, b) => b - a);
  const weights = distinct.map((count) => `1/${count * counts.length}`);
  return weights.length > 2 ? `${weights[0]} to ${weights.at(-1)}` : weights.join(" and ");
}

/** `axis 0`, `axis None`, `axes 0, 1`. */
export function axisLabel(axis: Reduction["axis"]): string {
  if (axis === null || axis === undefined) return "axis None";
  if (typeof axis === "number") return `axis ${axis}`;
  return `axes ${axis.join(", ")}`;
}
