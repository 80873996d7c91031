import type { RefObject } from "react";
import type uPlot from "uplot";
import { type CursorStore, useCursor } from "./cursor";
import { type Drawing, type Line, pointAt } from "./drawing";
import { LineMark } from "./line-mark";

interface ReadoutProps {
  cursor: CursorStore;
  drawing: Drawing;
  lines: readonly Line[];
  xName: string;
  formatX: (value: number) => string;
  formatY: (value: number) => string;
}

/** The number under the cursor, or the newest. Of several lines it is the nearest one's, with its name. */
export function Readout({ cursor, drawing, lines, xName, formatX, formatY }: ReadoutProps) {
  const place = useCursor(cursor);
  const nth = lines.length === 1 ? 0 : (place?.line ?? null);
  const line = nth === null ? undefined : lines[nth];
  const at = place ? pointAt(drawing.own[nth ?? 0], place.at) : (line?.columns.x.length ?? 0) - 1;
  const x = place ? drawing.x[place.at] : line?.columns.x[at];
  return (
    <span className="ml-auto whitespace-nowrap text-xs">
      {x !== undefined && (
        <span className="text-muted">
          {xName} {formatX(x)}
        </span>
      )}{" "}
      {line && lines.length === 1 && <Value at={at} formatY={formatY} line={line} pointed={place !== null} />}
    </span>
  );
}

interface ValueProps {
  line: Line;
  at: number;
  /** Under the pointer it is the number that is drawn there; else the newest. */
  pointed: boolean;
  formatY: (value: number) => string;
}

function Value({ line: { columns }, at, pointed, formatY }: ValueProps) {
  const odd = columns.odd[at];
  const several = pointed && (columns.count[at] ?? 0) > 1;
  const value = several ? columns.mean[at] : columns.last[at];
  if (odd && !(several && typeof value === "number"))
    return <span className="font-strong text-warn">{odd}</span>;
  return (
    <span className="font-strong">
      {several && <span className="font-normal text-muted">mean </span>}
      {typeof value === "number" ? formatY(value) : "–"}
    </span>
  );
}

/** More lines than these are named only near the pointer. */
const MOST_ROWS = 8;

interface TooltipProps extends Omit<ReadoutProps, "xName"> {
  chart: RefObject<uPlot | null>;
}

/** Names the lines at the pointer: all of a few, else those nearest to it. */
export function Tooltip({ chart, cursor, drawing, lines, formatX, formatY }: TooltipProps) {
  const place = useCursor(cursor);
  const plot = chart.current;
  const x = place ? drawing.x[place.at] : undefined;
  if (!place?.own || !plot || x === undefined) return null;
  const rows = rowsAt(drawing, lines, place.at, place.line);
  const left = plot.valToPos(x, "x") + plot.over.offsetLeft;
  const right = left > plot.width / 2;
  return (
    <div
      aria-hidden="true"
      className="pointer-events-none absolute top-1 z-10 max-w-80 rounded-panel border border-line-strong bg-bg px-2 py-1.5 text-2xs"
      data-testid="chart-tooltip"
      style={right ? { right: plot.width - left + 10 } : { left: left + 10 }}
    >
      <p className="text-muted">{formatX(x)}</p>
      {rows.map(({ line, at }) => (
        <p
          className={`flex items-center gap-1.5 ${lines[place.line ?? -1] === line ? "font-strong" : ""}`}
          key={line.id}
        >
          <LineMark style={line.style} />
          <span className="min-w-0 flex-1 truncate">{line.label}</span>
          <span className="pl-2">
            {typeof line.columns.mean[at] === "number"
              ? formatY(line.columns.mean[at])
              : (line.columns.odd[at] ?? "–")}
          </span>
        </p>
      ))}
      {rows.length < lines.length && <p className="text-muted">and {lines.length - rows.length} further</p>}
    </div>
  );
}

/** The lines to name, the highest first: the nearest ones where there are many. */
export function rowsAt(drawing: Drawing, lines: readonly Line[], x: number, nearest: number | null) {
  const rows = lines
    .map((line, nth) => ({ line, nth, at: pointAt(drawing.own[nth], x) }))
    .filter(({ at }) => at >= 0)
    .map((row) => ({ ...row, value: row.line.columns.mean[row.at] ?? Number.NEGATIVE_INFINITY }));
  const value = rows.find(({ nth }) => nth === nearest)?.value ?? Number.POSITIVE_INFINITY;
  const away = (row: { value: number }) => Math.abs(row.value - value);
  return rows
    .toSorted((a, b) => (away(a) || 0) - (away(b) || 0))
    .slice(0, MOST_ROWS)
    .sort((a, b) => b.value - a.value || a.nth - b.nth);
}
