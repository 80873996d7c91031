import type { ComparedCurve } from "@/api/schema";
import type { TimeChartColumns } from "@/components/charts/chart-table";
import { fromWire } from "@/lib/wire-numbers";

/** Shares of the runs below the band's lower and upper edge, and below its middle. */
const QUANTILES = [0.1, 0.5, 0.9] as const;

/** In each bucket of the shared axis, where the runs' means lie: the middle one, between a tenth from below and above. */
export function bandOf(curves: readonly ComparedCurve[]): TimeChartColumns {
  const buckets = new Map<number, { x: number; values: number[] }>();
  for (const { points } of curves) {
    for (const [at, bucket] of points.bucket.entries()) {
      const value = fromWire(points.mean[at]);
      const x = fromWire(points.x[at]) ?? 0;
      const found = buckets.get(bucket) ?? { x, values: [] };
      found.x = Math.max(found.x, x);
      if (value !== null && Number.isFinite(value)) found.values.push(value);
      buckets.set(bucket, found);
    }
  }
  const ordered = [...buckets].sort(([a], [b]) => a - b).map(([, bucket]) => bucket);
  for (const { values } of ordered) values.sort((a, b) => a - b);
  const column = (share: number) => ordered.map(({ values }) => quantile(values, share));
  const [min, mean, max] = QUANTILES.map(column) as [Column, Column, Column];
  return {
    x: ordered.map(({ x }) => x),
    min,
    mean,
    max,
    last: mean,
    odd: ordered.map(({ values }) => (values.length > 0 ? null : "no finite value")),
    count: ordered.map(({ values }) => values.length),
  };
}

type Column = (number | null)[];

/** Of sorted values, by the straight line between the two that are nearest. */
function quantile(sorted: readonly number[], share: number): number | null {
  if (sorted.length === 0) return null;
  const place = share * (sorted.length - 1);
  const [low, high] = [sorted[Math.floor(place)] ?? 0, sorted[Math.ceil(place)] ?? 0];
  const part = place - Math.floor(place);
  return low * (1 - part) + high * part;
}
