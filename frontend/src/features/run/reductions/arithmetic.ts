import type { ArraySummary, Reduction } from "@/api/schema";
import { valuesFromWire } from "@/lib/wire-numbers";

/** An array with all its values, row-major. */
export interface Tensor {
  shape: number[];
  values: number[];
}

export type Axis = number | readonly number[] | null | undefined;

/** A reduction worked out again from what each replica put in. */
export type Recomputed =
  | { kind: "worked_out"; result: Tensor; reproduces: boolean; largestDifference: number }
  | { kind: "not_kept"; sentence: string }
  | { kind: "shapes_differ"; shapes: string[]; sentence: string };

/** Recomputes the result by the documented rules and compares it with the recorded one. */
export function recompute(reduction: Reduction): Recomputed {
  const inputs = reduction.inputs.map(tensorOf);
  if (inputs.some((input) => input === null)) return explainNotKept(reduction);
  const tensors = inputs as Tensor[];
  if (!sameShapes(tensors.map((tensor) => sumOverAxes(tensor, reduction.axis).shape)))
    return shapesDiffer(tensors);
  const result = combine(tensors, reduction.op, reduction.axis);
  const recorded = valuesFromWire(reduction.output.values);
  if (!recorded || recorded.length !== result.values.length) return explainNotKept(reduction);
  const allowance = tolerance(tensors, reduction);
  const difference = largestDifference(result.values, recorded);
  return { kind: "worked_out", result, reproduces: difference <= allowance, largestDifference: difference };
}

/** SUM or MEAN of one tensor per replica, with the right denominator: the number of elements, not of replicas. */
export function combine(inputs: readonly Tensor[], op: "sum" | "mean", axis: Axis): Tensor {
  const parts = inputs.map((input) => sumOverAxes(input, axis));
  const first = parts[0] ?? { shape: [], values: [] };
  const total = first.values.map((_, i) =>
    parts.reduce((sum, part) => sum + (part.values[i] ?? Number.NaN), 0),
  );
  if (op === "sum") return { shape: first.shape, values: total };
  const denominator = inputs.reduce((sum, input) => sum + countContributed(input.shape, axis), 0);
  return { shape: first.shape, values: total.map((value) => value / denominator) };
}

/** How many elements a replica contributes along the axis; 1 where the axis is None. */
export function countContributed(shape: readonly number[], axis: Axis): number {
  return axesOf(axis, shape.length).reduce((product, k) => product * (shape[k] ?? 1), 1);
}

/** What each replica says by itself: its own sum for SUM, its own mean for MEAN. */
export function ownValue(input: Tensor, op: "sum" | "mean", axis: Axis): Tensor {
  const part = sumOverAxes(input, axis);
  const n = countContributed(input.shape, axis);
  return op === "sum" ? part : { shape: part.shape, values: part.values.map((value) => value / n) };
}

/** The average of the replicas' own means: wrong where replicas contribute different numbers of elements. */
export function meanOfMeans(inputs: readonly Tensor[], axis: Axis): Tensor {
  const means = inputs.map((input) => ownValue(input, "mean", axis));
  return combine(means, "mean", null);
}

/** Sums a tensor over its axes; with axis None it stays as it is. */
function sumOverAxes(input: Tensor, axis: Axis): Tensor {
  const axes = new Set(axesOf(axis, input.shape.length));
  if (axes.size === 0) return input;
  const shape = input.shape.filter((_, k) => !axes.has(k));
  const sums = new Array<number>(shape.reduce((product, n) => product * n, 1)).fill(0);
  input.values.forEach((value, flat) => {
    const target = targetIndex(flat, input.shape, axes);
    sums[target] = (sums[target] ?? 0) + value;
  });
  return { shape, values: sums };
}

/** Of each element of the result what each replica adds to it; `null` where values were not kept or shapes do not fit. */
export function columnsOf({ inputs, axis }: Reduction): number[][][] | null {
  const byReplica = inputs.map((input) => {
    const tensor = tensorOf(input);
    if (!tensor) return null;
    const axes = new Set(axesOf(axis, tensor.shape.length));
    const size = tensor.shape.reduce((product, n, k) => (axes.has(k) ? product : product * n), 1);
    const targets: number[][] = Array.from({ length: size }, () => []);
    tensor.values.forEach((value, flat) => {
      targets[targetIndex(flat, tensor.shape, axes)]?.push(value);
    });
    return targets;
  });
  const size = byReplica[0]?.length;
  if (size === undefined || byReplica.some((targets) => targets?.length !== size)) return null;
  return Array.from({ length: size }, (_, at) => byReplica.map((targets) => targets?.[at] ?? []));
}

function targetIndex(flat: number, shape: readonly number[], axes: ReadonlySet<number>): number {
  let target = 0;
  let rest = flat;
  let stride = 1;
  for (let k = shape.length - 1; k >= 0; k--) {
    const n = shape[k] ?? 1;
    if (!axes.has(k)) {
      target += (rest % n) * stride;
      stride *= n;
    }
    rest = Math.floor(rest / n);
  }
  return target;
}

function axesOf(axis: Axis, rank: number): number[] {
  if (axis === null || axis === undefined) return [];
  return (typeof axis === "number" ? [axis] : [...axis]).map((k) => (k < 0 ? k + rank : k));
}

export function tensorOf(summary: ArraySummary): Tensor | null {
  const values = valuesFromWire(summary.values);
  return values ? { shape: [...summary.shape], values } : null;
}

function sameShapes(shapes: readonly (readonly number[])[]): boolean {
  const first = shapes[0]?.join(",");
  return shapes.every((shape) => shape.join(",") === first);
}

/** `(4)`, `(2, 3)`, `()`: shapes as people read them. */
export function shapeText(shape: readonly number[]): string {
  return `(${shape.join(", ")})`;
}

/** Half of a unit in the last place of 1, by type: what one rounding may cost. */
const ROUNDING: Record<string, number> = {
  bfloat16: 2 ** -8,
  float16: 2 ** -11,
  float32: 2 ** -24,
  float64: 2 ** -53,
};

/** How far two orders of summation may be apart: the error bound of a plain sum, in the coarsest type involved. */
function tolerance(inputs: readonly Tensor[], reduction: Reduction): number {
  const types = [reduction.output.dtype, ...reduction.inputs.map((input) => input.dtype)];
  const unit = Math.max(0, ...types.map((type) => ROUNDING[type] ?? 0));
  const finite = inputs.flatMap((input) => input.values).filter(Number.isFinite);
  const magnitude = finite.reduce((sum, value) => sum + Math.abs(value), 0);
  const divisor = reduction.op === "mean" ? Math.max(1, reduction.denominator ?? 1) : 1;
  return (unit * (finite.length + 2) * magnitude) / divisor;
}

function largestDifference(a: readonly number[], b: readonly number[]): number {
  return a.reduce((most, value, i) => Math.max(most, difference(value, b[i] ?? Number.NaN)), 0);
}

function difference(a: number, b: number): number {
  if (Object.is(a, b) || a === b) return 0;
  if (Number.isNaN(a) && Number.isNaN(b)) return 0;
  return Number.isFinite(a) && Number.isFinite(b) ? Math.abs(a - b) : Number.POSITIVE_INFINITY;
}

function explainNotKept(reduction: Reduction): Recomputed {
  const sizes = [...reduction.inputs, reduction.output].map((array) =>
    array.shape.reduce((a, b) => a * b, 1),
  );
  return {
    kind: "not_kept",
    sentence: `Arrays of up to ${Math.max(...sizes).toLocaleString("en")} elements: ${whatIsKept(reduction)}`,
  };
}

/** As the SDK says it. */
const WHY_NOT_WHOLE: Record<NonNullable<Reduction["not_whole"]>, string> = {
  array_bytes: "an array has more than 64 KiB",
  all_bytes: "all arrays together have more than 576 KiB",
  type: "elements of this type are not kept bit for bit",
  several_steps: "a call of run_steps keeps them of one step, and this is another",
  between: "outside of steps they are kept only as often as large arrays of steps are recorded",
  run_bytes: "the attempt has kept 64 MiB of them",
};

function whatIsKept({ whole_bytes, not_whole }: Reduction): string {
  if (whole_bytes != null)
    return "every one is kept, and the result is worked out again from them on request.";
  if (not_whole) return `inputs not kept whole because ${WHY_NOT_WHOLE[not_whole]}.`;
  return "only their statistics were kept, so the result cannot be worked out again here.";
}

function shapesDiffer(tensors: readonly Tensor[]): Recomputed {
  const shapes = tensors.map((tensor) => shapeText(tensor.shape));
  const distinct = [...new Set(shapes)].join(" and ");
  return {
    kind: "shapes_differ",
    shapes,
    sentence: `Shapes ${distinct} differ: reducing them needs axis=0.`,
  };
}
