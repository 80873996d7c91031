/** What a chart draws: lines over x, put beside each other over one list of x. */
import { count } from "@/lib/format";
import type { TimeChartColumns } from "./chart-table";
import { smoothed } from "./smoothing";
import { type Drawn, drawnAs } from "./uplot-options";

export interface Line {
  id: string;
  /** What it is called in the legend, under the pointer and in exports. */
  label: string;
  /** Its number among those that are told apart by colour and dash; null where it stands alone. */
  style: number | null;
  columns: TimeChartColumns;
  /** Drawn over the others, with its band: a base, or what is pointed at. */
  strong?: boolean;
}

export type Column = (number | null | undefined)[];

/** One drawn column. */
export interface Layer {
  line: number;
  part: "main" | "raw" | "max" | "min";
  values: Column;
}

export interface Drawing {
  x: number[];
  layers: Layer[];
  places: Drawn;
  /** Of each line, at which of its own points `x[at]` is; -1 between them. */
  own: Int32Array[];
}

/** More bands than these cover each other. */
export const MOST_BANDS = 8;

/** Lines over one x. `null` is a hole in a line; `undefined` a place at which only others have a point. */
export function drawingOf(lines: readonly Line[], log: boolean, smooth: number): Drawing {
  const x = unionOf(lines.map(({ columns }) => columns.x));
  const places = drawnAs(
    lines.flatMap(({ columns }) => [columns.min, columns.max, columns.mean]),
    log,
  );
  const own = lines.map(({ columns }) => positions(columns.x, x));
  const layers = lines.flatMap(({ columns, strong }, line) => {
    const at = own[line] ?? new Int32Array();
    const spread = (values: readonly (number | null)[]): Column =>
      Array.from(at, (from) => (from < 0 ? undefined : placed(values[from] ?? null, places)));
    const banded = strong || lines.length <= MOST_BANDS;
    const band: Layer[] = banded
      ? [
          { line, part: "max", values: spread(columns.max) },
          { line, part: "min", values: spread(columns.min) },
        ]
      : [];
    if (smooth <= 0) return [...band, { line, part: "main" as const, values: spread(columns.mean) }];
    const main: Layer = { line, part: "main", values: spread(smoothed(columns.mean, smooth)) };
    return [...band, { line, part: "raw" as const, values: spread(columns.mean) }, main];
  });
  return { x, layers, places, own };
}

function placed(value: number | null, places: Drawn): number | null {
  return value === null ? null : places.to(value);
}

/** Every x of any line once, ascending. */
function unionOf(columns: readonly (readonly number[])[]): number[] {
  const [only] = columns;
  if (columns.length === 1 && only) return [...only];
  return [...new Set(columns.flat())].sort((a, b) => a - b);
}

function positions(own: readonly number[], all: readonly number[]): Int32Array {
  const found = new Int32Array(all.length).fill(-1);
  let at = 0;
  for (const [index, x] of own.entries()) {
    while (at < all.length && (all[at] ?? 0) < x) at += 1;
    if (all[at] === x) found[at] = index;
  }
  return found;
}

/** The point of a line at `x[at]`, else the one nearest before it; -1 where it has not begun. */
export function pointAt(own: Int32Array | undefined, at: number): number {
  for (let place = Math.min(at, (own?.length ?? 0) - 1); place >= 0; place -= 1) {
    const found = own?.[place] ?? -1;
    if (found >= 0) return found;
  }
  return -1;
}

/** What a log scale leaves out: so many values, or buckets in which there are some, for nobody knows how many. */
export function belowZero(lines: readonly Line[]): string {
  let hidden = 0;
  let merged = false;
  for (const { columns } of lines)
    columns.min.forEach((value, at) => {
      if ((value ?? columns.mean[at] ?? Number.POSITIVE_INFINITY) > 0) return;
      hidden += 1;
      merged ||= (columns.count[at] ?? 1) > 1;
    });
  if (hidden === 0) return "";
  const what = merged ? `${count(hidden, "bucket")} with values` : String(hidden);
  return ` · ${what} at or below zero, which a log scale cannot show`;
}
