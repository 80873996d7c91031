import type { MetricSeries } from "@/api/schema";
import { cell } from "@/lib/csv";
import { fromWire, type WireNumber } from "@/lib/wire-numbers";

/** The server answers with at most this many buckets at once. */
export const MAX_BUCKETS = 2000;

const HEADER = "name,step,count,min,mean,max,last";

/** Windows of steps, each narrow enough that no two steps share a bucket. */
export function exportWindows(firstStep: number, lastStep: number): { from: number; to: number }[] {
  const windows: { from: number; to: number }[] = [];
  for (let from = firstStep; from <= lastStep; from += MAX_BUCKETS) {
    windows.push({ from, to: Math.min(lastStep, from + MAX_BUCKETS - 1) });
  }
  return windows;
}

/** One row per step (or bucket) of each series; header included. */
export function csvOf(pages: readonly (readonly MetricSeries[])[]): string {
  const rows = pages.flatMap((page) => page.flatMap(rowsOf));
  return `${[HEADER, ...rows].join("\r\n")}\r\n`;
}

function rowsOf(series: MetricSeries): string[] {
  const { points } = series;
  return points.x.map((x, i) =>
    [
      cell(series.name),
      numberText(x),
      numberText(points.count[i]),
      numberText(points.min[i]),
      numberText(points.mean[i]),
      numberText(points.max[i]),
      numberText(points.last[i]),
    ].join(","),
  );
}

function numberText(value: WireNumber): string {
  const number = fromWire(value);
  return number === null ? "" : String(number);
}
