import type { Reduction } from "@/api/schema";
import { valuesFromWire } from "@/lib/wire-numbers";
import { columnsOf } from "./arithmetic";

/** A usual mistake, and what it would have given. */
export interface WrongAnswer {
  what: string;
  value: number;
}

/** The result beside the one that follows from what was put in; the same rule as the SDK's `replay`. */
export interface Replay {
  outcome: "bit for bit" | "within the bound" | "differs";
  /** The largest distance in units in the last place, and how far rounding can put it there in any order. */
  ulps: number;
  bound: number;
}

/** Half of a unit in the last place of 1, by type. */
const UNITS: Record<string, number> = {
  bfloat16: 2 ** -8,
  float16: 2 ** -11,
  float32: 2 ** -24,
  float64: 2 ** -53,
};
const ROUND: Record<string, (value: number) => number> = { float32: Math.fround, float64: (value) => value };

/** Adds in the order of the replicas, in their type; `null` where values are missing or no floating point. */
export function replayOf(reduction: Reduction): Replay | null {
  const told = valuesFromWire(reduction.output.values);
  const columns = columnsOf(reduction);
  const { dtype } = reduction.output;
  const unit = UNITS[dtype];
  const types = new Set(reduction.inputs.map((input) => input.dtype));
  const isFloat = types.size === 1 && [...types].every((type) => type in UNITS);
  if (!told || columns?.length !== told.length || unit === undefined || !isFloat) return null;
  const divisor = reduction.denominator ?? 1;
  const bounds = columns.map((column) => boundOf(column, divisor, dtype, unit));
  const bound = Math.max(0, ...bounds);
  const round = ROUND[dtype];
  const again = round && types.has(dtype) ? columns.map((column) => inOrder(column, divisor, round)) : null;
  if (again?.every((value, at) => Object.is(value, told[at])))
    return { outcome: "bit for bit", ulps: 0, bound };
  const ulps = columns.map((column, at) =>
    distance(share(column, divisor), told[at] ?? Number.NaN, dtype, unit),
  );
  const fits = ulps.every((own, at) => own <= (bounds[at] ?? 0));
  return { outcome: fits ? "within the bound" : "differs", ulps: Math.max(0, ...ulps), bound };
}

function inOrder(column: readonly number[][], divisor: number, round: (value: number) => number): number {
  const add = (values: readonly number[]) =>
    values.length === 0 ? 0 : values.reduce((total, value) => round(total + value));
  return round(add(column.map(add)) / divisor);
}

/** The sum with what each addition loses added at the end (Neumaier), divided. */
function share(column: readonly number[][], divisor: number): number {
  let total = 0;
  let lost = 0;
  for (const value of column.flat()) {
    const next = total + value;
    lost += Math.abs(total) >= Math.abs(value) ? total - next + value : value - next + total;
    total = next;
  }
  return (Number.isFinite(total) ? total + lost : total) / divisor;
}

function boundOf(column: readonly number[][], divisor: number, dtype: string, unit: number): number {
  const finite = column.flat().filter(Number.isFinite).map(Math.abs);
  const exact = share(column, divisor);
  if (!Number.isFinite(exact)) return 0;
  return ((finite.length + 2) * unit * share([finite], divisor)) / ulpOf(exact, dtype, unit);
}

function ulpOf(value: number, dtype: string, unit: number): number {
  const least = dtype === "float64" ? -1021 : -126;
  const exponent = value === 0 ? least : Math.max(least, Math.floor(Math.log2(Math.abs(value))));
  return 2 * unit * 2 ** exponent;
}

function distance(exact: number, told: number, dtype: string, unit: number): number {
  if (Object.is(exact, told) || exact === told) return 0;
  const measurable = Number.isFinite(exact) && Number.isFinite(told);
  return measurable ? Math.abs(exact - told) / ulpOf(exact, dtype, unit) : Number.POSITIVE_INFINITY;
}

/** Those that give another number than the result, which is a scalar of inputs that are all known; else none. */
export function wrongAnswers(reduction: Reduction): WrongAnswer[] {
  const parts = reduction.inputs.map((input) => valuesFromWire(input.values));
  const right = valuesFromWire(reduction.output.values)?.[0];
  if (reduction.output.shape.length > 0 || right === undefined || parts.some((part) => part === null))
    return [];
  const types = [reduction.output.dtype, ...reduction.inputs.map(({ dtype }) => dtype)];
  const tolerance = types.some((type) => type === "bfloat16" || type === "float16") ? 2e-2 : 1e-5;
  return mistakes(reduction, parts as number[][]).filter(({ value }) => differ(value, right, tolerance));
}

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

function mistakes({ op, axis, counts }: Reduction, parts: readonly number[][]): WrongAnswer[] {
  const sums = parts.map(sum);
  const means = sums.map((own, at) => own / (counts[at] ?? 1));
  const number = sum(counts);
  const total = sum(sums);
  const isMean = op === "mean";
  const found: WrongAnswer[] = isMean
    ? [{ what: `SUM for MEAN: not divided by ${number}`, value: total }]
    : [{ what: `MEAN for SUM: divided by ${number}`, value: total / number }];
  if (axis !== null && isMean) {
    found.push({ what: "mean of the replicas' own means", value: sum(means) / means.length });
    const what = `divided by the ${parts.length} replicas, not the elements`;
    found.push({ what, value: total / parts.length });
  } else if (axis !== null) {
    found.push({ what: "the replicas' own means added up", value: sum(means) });
  }
  const kept = parts.flat().filter((value) => !Number.isNaN(value));
  if (kept.length < parts.flat().length)
    found.push({ what: "NaN skipped", value: isMean ? sum(kept) / kept.length : sum(kept) });
  found.push({ what: "replica 0 alone", value: (isMean ? means[0] : sums[0]) ?? Number.NaN });
  return found;
}

function differ(one: number, other: number, tolerance: number): boolean {
  if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) !== Number.isNaN(other);
  if (!Number.isFinite(one) || !Number.isFinite(other)) return one !== other;
  return Math.abs(one - other) > tolerance * Math.max(Math.abs(one), Math.abs(other));
}
