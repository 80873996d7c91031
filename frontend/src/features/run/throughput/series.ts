import type { MetricSeries } from "@/api/schema";
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
  count: number[];
  bucketWidth: number;
  /** How many values were logged in all. */
  n: number;
  /** x of buckets without any finite value. */
  notFinite: number[];
}

const SYSTEM_ORDER = ["sys/steps_per_s", "sys/examples_per_s", "sys/step_ms"];
const SYSTEM: Record<string, { title: string; unit: string }> = {
  "sys/steps_per_s": { title: "Steps per second", unit: "" },
  "sys/examples_per_s": { title: "Examples per second", unit: "" },
  "sys/step_ms": { title: "Step time", unit: "ms" },
};

export function curveOf(series: MetricSeries): Curve {
  const { points } = series;
  const column = (values: readonly WireNumber[]): (number | null)[] => values.map(finiteOrNull);
  const mean = column(points.mean);
  const x = points.x.map((value) => fromWire(value) ?? Number.NaN);
  return {
    name: series.name,
    title: SYSTEM[series.name]?.title ?? series.name,
    unit: SYSTEM[series.name]?.unit ?? series.unit,
    x,
    min: column(points.min),
    max: column(points.max),
    mean,
    last: column(points.last),
    count: [...points.count],
    bucketWidth: series.bucket_width,
    n: series.n,
    notFinite: x.filter((_, i) => mean[i] === null && (points.count[i] ?? 0) > 0),
  };
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
