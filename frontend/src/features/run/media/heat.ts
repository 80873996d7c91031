import type { HistogramValue } from "@/api/schema";

export interface HeatMap {
  low: number;
  high: number;
  /** Shares of each histogram's finite values by row, from `low` up. */
  columns: number[][];
}

/** Histograms on one axis of so many rows: what a bin holds is spread evenly over the rows that it covers. */
export function heatMapOf(histograms: readonly HistogramValue[], rows: number): HeatMap | null {
  const known = histograms.flatMap(({ min, max }) => (min === null || max === null ? [] : [{ min, max }]));
  if (known.length === 0) return null;
  const low = Math.min(...known.map(({ min }) => min));
  const high = Math.max(...known.map(({ max }) => max));
  return { low, high, columns: histograms.map((one) => columnOf(one, low, high, rows)) };
}

function columnOf({ counts, min, max }: HistogramValue, low: number, high: number, rows: number): number[] {
  const column = new Array<number>(rows).fill(0);
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (min === null || max === null || total === 0) return column;
  const place = (value: number) =>
    high > low ? ((value / 2 - low / 2) / (high / 2 - low / 2)) * rows : rows / 2;
  const [first, last] = [place(min), place(max)];
  counts.forEach((count, bin) => {
    const from = first + ((last - first) * bin) / counts.length;
    const to = first + ((last - first) * (bin + 1)) / counts.length;
    spread(column, from, to, count / total);
  });
  return column;
}

function spread(column: number[], from: number, to: number, share: number): void {
  const last = column.length - 1;
  const [begin, end] = [Math.min(Math.floor(from), last), Math.min(Math.floor(to), last)];
  if (begin === end || to <= from) {
    column[begin] = (column[begin] ?? 0) + share;
    return;
  }
  for (let row = begin; row <= end; row++) {
    const covered = Math.min(to, row + 1) - Math.max(from, row);
    column[row] = (column[row] ?? 0) + (share * covered) / (to - from);
  }
}

export const LEVELS = 5;

/** Which of the colours a share has, from 1; 0 for none. By its root: tails are thin, and must be seen. */
export function levelOf(share: number, most: number): number {
  return share <= 0 || most <= 0 ? 0 : Math.max(1, Math.ceil(Math.sqrt(share / most) * LEVELS));
}
