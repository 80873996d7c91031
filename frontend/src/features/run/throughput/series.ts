import type { MetricGap, MetricSeries } from "@/api/schema";
import { extentOf } from "@/components/charts/scale";
import { count, formatNumber } from "@/lib/format";
import { fromWire, type WireNumber } from "../reductions/numbers";

export type XAxis = "step" | "time";

/** A metric ready to draw: parallel columns over x; `null` where a bucket holds no finite value. */
export interface Curve {
  name: string;
  title: string;
  unit: string;
  x: number[];
  min: (number | null)[];
  max: (number | null)[];
  mean: (number | null)[];
  last: (number | null)[];
  /** What stands at a place that has no number: `NaN`, `Infinity`, `12 values lost`. */
  odd: (string | null)[];
  count: number[];
  bucketWidth: number;
  /** How many values were logged in all. */
  n: number;
  /** x of buckets without any finite value. */
  notFinite: number[];
  /** At how many places between its values some were lost. */
  lost: number;
}

const SYSTEM_ORDER = ["sys/steps_per_s", "sys/examples_per_s", "sys/step_ms"];
const SYSTEM: Record<string, { title: string; unit: string }> = {
  "sys/steps_per_s": { title: "Steps per second", unit: "" },
  "sys/examples_per_s": { title: "Examples per second", unit: "" },
  "sys/step_ms": { title: "Step time", unit: "ms" },
};

export function curveOf(series: MetricSeries, gaps: readonly MetricGap[] = []): Curve {
  const { points } = series;
  const column = (values: readonly WireNumber[]): (number | null)[] => values.map(finiteOrNull);
  const [min, max] = [column(points.min), column(points.max)];
  const mean = column(points.mean).map((value, at) => within(value, min[at], max[at]));
  const x = points.x.map((value) => fromWire(value) ?? Number.NaN);
  return withGaps(gaps, {
    name: series.name,
    title: SYSTEM[series.name]?.title ?? series.name,
    unit: SYSTEM[series.name]?.unit ?? series.unit,
    x,
    min,
    max,
    mean,
    last: column(points.last),
    odd: points.last.map(oddText),
    count: [...points.count],
    bucketWidth: series.bucket_width,
    n: series.n,
    notFinite: x.filter((_, i) => mean[i] === null && (points.count[i] ?? 0) > 0),
    lost: 0,
  });
}

/** A hole between two points for each gap, so that neither line nor band goes across it. */
function withGaps(gaps: readonly MetricGap[], curve: Curve): Curve {
  const holed = { ...curve };
  for (const gap of gaps) {
    const [start, end] = [fromWire(gap.start), fromWire(gap.end)];
    if (start === null || end === null) continue;
    const at = holed.x.findIndex((x) => x > start);
    const [left, right] = [holed.x[at - 1], holed.x[at]];
    if (left === undefined || right === undefined) continue;
    const told = lostText(gap);
    holed.lost += 1;
    if (holed.count[at] === 0) holed.odd = holed.odd.with(at, `${holed.odd[at]}, ${told}`);
    else insert(holed, at, (left + right) / 2, told);
  }
  return holed;
}

/** A gap is in the stream of all metrics: how many of them were this one's nobody knows. */
function lostText({ count: lost, what }: MetricGap): string {
  if (lost === null) return "values lost here";
  return what === "metrics" ? `${count(lost, "value")} of all metrics lost` : `${count(lost, "record")} lost`;
}

function insert(curve: Curve, at: number, x: number, odd: string): void {
  curve.x = curve.x.toSpliced(at, 0, x);
  curve.odd = curve.odd.toSpliced(at, 0, odd);
  curve.count = curve.count.toSpliced(at, 0, 0);
  for (const column of ["min", "max", "mean", "last"] as const)
    curve[column] = curve[column].toSpliced(at, 0, null);
}

/** Both ends of x that all of the curves share: what is zoomed to, else everything there is. */
export function domainOf(
  curves: readonly Curve[],
  from: number | undefined,
  to: number | undefined,
): [number, number] {
  if (from !== undefined && to !== undefined && from < to) return [from, to];
  const ends = curves.flatMap(({ x }) => [x[0], x.at(-1)]).filter((end) => end !== undefined);
  const [low, high] = extentOf(ends.filter(Number.isFinite));
  if (!(low <= high)) return [0, 1];
  return low < high ? [low, high] : [low - 0.5, high + 0.5];
}

/** A mean may lie outside of what it is the mean of, by rounding. */
function within(value: number | null, low: number | null | undefined, high: number | null | undefined) {
  if (value === null || typeof low !== "number" || typeof high !== "number") return value;
  return Math.min(high, Math.max(low, value));
}

function oddText(value: WireNumber): string | null {
  const number = fromWire(value);
  return number === null || Number.isFinite(number) ? null : formatNumber(number);
}

/** Speed first in its fixed order, then the program's own metrics by name. */
export function inOrder<Named extends { name: string }>(curves: readonly Named[]): Named[] {
  const rank = (name: string): number => {
    const known = SYSTEM_ORDER.indexOf(name);
    if (known >= 0) return known;
    return name.startsWith("sys/") ? SYSTEM_ORDER.length : SYSTEM_ORDER.length + 1;
  };
  return [...curves].sort(
    (a, b) => rank(a.name) - rank(b.name) || a.name.localeCompare(b.name, "en", { numeric: true }),
  );
}

/** `1 bucket = 25 steps · min/mean/max`, several values of one step, or that nothing is left out. */
export function bucketCaption(curve: Curve, axis: XAxis): string {
  const largest = curve.count.reduce((most, count) => Math.max(most, count), 0);
  if (largest <= 1) return "every value shown";
  if (curve.bucketWidth === 0)
    return `up to ${largest} values per ${axis === "step" ? "step" : "moment"} · min/mean/max`;
  const width = Number(curve.bucketWidth.toPrecision(3));
  const unit = axis === "step" ? (width === 1 ? "step" : "steps") : "s";
  return `1 bucket = ${width} ${unit} · min/mean/max`;
}

/** Whether the band between min and max has any height to show. */
export function hasBand(curve: Curve): boolean {
  return curve.min.some((low, i) => low !== null && low !== curve.max[i]);
}

/** Index of the point nearest to `x`; -1 where there is none. */
export function nearestIndex(xs: readonly number[], x: number): number {
  let [low, high] = [0, xs.length - 1];
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((xs[middle] ?? 0) < x) low = middle;
    else high = middle;
  }
  return Math.abs((xs[low] ?? 0) - x) <= Math.abs((xs[high] ?? 0) - x) ? low : high;
}

function finiteOrNull(value: WireNumber): number | null {
  const number = fromWire(value);
  return number !== null && Number.isFinite(number) ? number : null;
}
