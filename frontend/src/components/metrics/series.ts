import type { MetricGap, MetricSeries } from "@/api/schema";
import type { Marker } from "@/components/charts/markers";
import { count, formatNumber } from "@/lib/format";
import { fromWire, type WireNumber } from "@/lib/wire-numbers";
import type { XAxis } from "./x-axis";

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
  /** How many values of each bucket are NaN or infinite. */
  notFiniteCount: number[];
  /** x of buckets without any finite value. */
  notFinite: number[];
  /** At how many places between its values some were lost. */
  lost: number;
}

const SYSTEM: Record<string, { title: string; unit: string }> = {
  "sys/steps_per_s": { title: "Steps per second", unit: "" },
  "sys/examples_per_s": { title: "Examples per second", unit: "" },
  "sys/tokens_per_s": { title: "Tokens per second", unit: "" },
  "sys/step_ms": { title: "Step time", unit: "ms" },
  "sys/input_wait_ms": { title: "Input wait of a step", unit: "ms" },
  "sys/dispatch_ms": { title: "Dispatch of a step", unit: "ms" },
  "sys/mfu_percent": { title: "MFU", unit: "%" },
  "sys/hfu_percent": { title: "HFU", unit: "%" },
};
const SYSTEM_ORDER = Object.keys(SYSTEM);

/** How a metric is called on pages: the engine's own have words, others their name. */
export function titleOf(name: string): string {
  return SYSTEM[name]?.title ?? name;
}

/** What is drawn of a metric: of one run, or of one among several. */
type Bucketed = Pick<MetricSeries, "name" | "unit" | "n" | "points"> & { bucket_width: number };

/** Of a column that was not asked for nothing is known. */
export function curveOf(series: Bucketed, gaps: readonly MetricGap[] = []): Curve {
  const { points } = series;
  const x = points.x.map((value) => fromWire(value) ?? Number.NaN);
  const column = (values: readonly WireNumber[]): (number | null)[] =>
    values.length < x.length ? x.map(() => null) : values.map(finiteOrNull);
  const [min, max] = [column(points.min), column(points.max)];
  const mean = column(points.mean).map((value, at) => within(value, min[at], max[at]));
  return withGaps(gaps, {
    name: series.name,
    title: titleOf(series.name),
    unit: SYSTEM[series.name]?.unit ?? series.unit,
    x,
    min,
    max,
    mean,
    last: column(points.last),
    odd:
      points.last.length < x.length
        ? mean.map((value) => (value === null ? "not finite" : null))
        : points.last.map(oddText),
    count: [...points.count],
    notFiniteCount: x.map((_, at) => points.not_finite?.[at] ?? 0),
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
  curve.notFiniteCount = curve.notFiniteCount.toSpliced(at, 0, 0);
  for (const column of ["min", "max", "mean", "last"] as const)
    curve[column] = curve[column].toSpliced(at, 0, null);
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

/** A mark at each place where a value is NaN or infinite. */
export function notFiniteMarkers({ x, odd, notFiniteCount, title }: Curve): Marker[] {
  return x.flatMap((place, at) => {
    const some = notFiniteCount[at] ?? 0;
    return some > 0
      ? [
          {
            x: place,
            kind: "not finite" as const,
            text: `${title}: ${odd[at] ?? count(some, "value")} not finite`,
          },
        ]
      : [];
  });
}

/** Speed last, in its fixed order; before it the program's own metrics as people count. */
export function inOrder<Named extends { name: string }>(curves: readonly Named[]): Named[] {
  const rank = (name: string): number => {
    const known = SYSTEM_ORDER.indexOf(name);
    if (known >= 0) return known + 1;
    return name.startsWith("sys/") ? SYSTEM_ORDER.length + 1 : 0;
  };
  return [...curves].sort(
    (a, b) => rank(a.name) - rank(b.name) || a.name.localeCompare(b.name, "en", { numeric: true }),
  );
}

/** `1 bucket = 25 steps · min/mean/max`, several values of one step, or that nothing is left out. */
export function bucketCaption(
  curve: Pick<Curve, "count" | "bucketWidth">,
  axis: XAxis,
  drawn: "min/mean/max" | "mean" = "min/mean/max",
): string {
  const largest = curve.count.reduce((most, count) => Math.max(most, count), 0);
  if (largest <= 1) return "every value shown";
  if (curve.bucketWidth === 0)
    return `up to ${largest} values per ${axis === "step" ? "step" : "moment"} · ${drawn}`;
  const width = Number(curve.bucketWidth.toPrecision(3));
  const unit = axis === "step" ? (width === 1 ? "step" : "steps") : "s";
  return `1 bucket = ${width} ${unit} · ${drawn}`;
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
