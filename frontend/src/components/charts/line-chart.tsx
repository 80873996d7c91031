import {
  type KeyboardEvent,
  type ReactNode,
  type RefObject,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import type uPlot from "uplot";
import { ChartTable, textOf } from "./chart-table";
import { CursorStore, useCursor } from "./cursor";
import { belowZero, type Drawing, drawingOf, type Line, pointAt } from "./drawing";
import { kindsWithin, MARKER_SIGNS, type Marker } from "./markers";
import { Readout, Tooltip } from "./readout";
import { usePlot } from "./use-plot";

export interface LineChartProps {
  title: string;
  unit: string;
  lines: readonly Line[];
  /** What one bucket holds. */
  caption: string;
  /** Charts of one group share their cursor. */
  group: string;
  log: boolean;
  /** Each value was measured since the point before it, such as a rate. */
  since: boolean;
  /** The weight of what was before in the smoothed curve; 0 draws none. */
  smooth: number;
  height: number;
  xName: string;
  /** Both ends of x: charts that are looked at together have the same. */
  domain: readonly [number, number];
  limits: { low?: number | undefined; high?: number | undefined };
  markers: readonly Marker[];
  /** A place of x that is kept, drawn in every chart. */
  picked: number | null;
  /** Controls at the right end of the heading. */
  aside?: ReactNode;
  formatX: (value: number) => string;
  /** Marks of x, at most so many between two ends; round numbers if left out. */
  ticksX?: ((low: number, high: number, most: number) => number[]) | undefined;
  formatY: (value: number) => string;
  onRange: (from: number, to: number) => void;
  onReset: () => void;
  /** A place was clicked, or chosen with Enter. */
  onPick: (x: number, line: Line | undefined) => void;
}

/** Curves with their bands between smallest and largest value, a shared cursor, and the same numbers as a table. */
export function LineChart(props: LineChartProps) {
  const { title, unit, lines, log, smooth, height, domain, formatX, formatY, xName, aside } = props;
  const box = useRef<HTMLDivElement>(null);
  const [cursor] = useState(() => new CursorStore());
  const drawing = useMemo(() => drawingOf(lines, log, smooth), [lines, log, smooth]);
  const chart = usePlot(box, cursor, { ...props, drawing });
  const press = useClicks(chart, cursor, drawing, props);
  const only = lines.length === 1 ? lines[0] : undefined;
  return (
    <figure
      aria-label={summary(props)}
      className="relative"
      data-domain={`${domain[0]} ${domain[1]}`}
      data-lines={lines.length}
      data-points={Math.max(0, ...lines.map(({ columns }) => columns.count.filter((n) => n > 0).length))}
      data-testid={`chart-${title}`}
    >
      {/* Its size is its own, so that a text which follows the pointer lays nothing else out. */}
      <figcaption className="flex h-6 items-center gap-2 contain-layout contain-size">
        <span className="truncate font-strong" title={title}>
          {title}
        </span>
        {unit && <span className="text-muted text-xs">{unit}</span>}
        <Readout
          cursor={cursor}
          drawing={drawing}
          formatX={formatX}
          formatY={formatY}
          lines={lines}
          xName={xName}
        />
        {aside}
      </figcaption>
      <div className="relative mt-1">
        {/* biome-ignore lint/a11y/useSemanticElements: a chart that is read with the arrow keys has no element of its own */}
        <div
          aria-label={`${title}: left and right move the cursor, Enter keeps its place`}
          onDoubleClick={props.onReset}
          ref={box}
          role="group"
          style={{ height }}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: the keys move its cursor
          tabIndex={0}
          {...press}
        />
        {lines.length > 1 && (
          <Tooltip
            chart={chart}
            cursor={cursor}
            drawing={drawing}
            formatX={formatX}
            formatY={formatY}
            lines={lines}
          />
        )}
      </div>
      <Announced cursor={cursor} drawing={drawing} {...props} />
      <p className="flex justify-between gap-3 text-2xs text-muted">
        <span>
          {props.caption}
          {log && belowZero(lines)}
          <Signs domain={domain} markers={props.markers} />
        </span>
        {only && <Range cursor={cursor} formatY={formatY} line={only} own={drawing.own[0]} />}
      </p>
      <ChartTable formatX={formatX} lines={lines} title={title} xName={xName} />
    </figure>
  );
}

/** Pointer and keys: a click keeps a place, arrows move the cursor. */
function useClicks(
  chart: RefObject<uPlot | null>,
  cursor: CursorStore,
  { x }: Drawing,
  { lines, onPick }: Pick<LineChartProps, "lines" | "onPick">,
) {
  const start = useRef(0);
  const pick = () => {
    const place = cursor.get();
    const at = place && x[place.at];
    if (place && at !== null && at !== undefined) onPick(at, lines[place.line ?? 0]);
  };
  const go = (at: number) => {
    const plot = chart.current;
    const place = Math.max(0, Math.min(x.length - 1, at));
    if (!plot || x[place] === undefined) return;
    plot.setCursor({ left: plot.valToPos(x[place], "x"), top: plot.over.clientHeight / 2 });
  };
  return {
    onPointerDown: (event: { clientX: number }) => {
      start.current = event.clientX;
    },
    onClick: (event: { clientX: number }) => {
      if (Math.abs(event.clientX - start.current) < 6) pick();
    },
    onBlur: () => chart.current?.setCursor({ left: -10, top: -10 }),
    onKeyDown: (event: KeyboardEvent) => {
      const now = cursor.get()?.at ?? x.length;
      const far = Math.max(1, Math.round(x.length / 20));
      const to: Record<string, number> = {
        ArrowLeft: now - 1,
        ArrowRight: now + 1,
        PageUp: now - far,
        PageDown: now + far,
        Home: 0,
        End: x.length - 1,
      };
      const next = to[event.key];
      if (next === undefined && event.key !== "Enter") return;
      event.preventDefault();
      if (next === undefined) pick();
      else go(next);
    },
  };
}

const PAUSE_MS = 250;

/** What the keys are on, for a screen reader, once they rest. */
function Announced({
  cursor,
  drawing,
  lines,
  formatX,
  formatY,
  xName,
}: LineChartProps & { cursor: CursorStore; drawing: Drawing }) {
  const place = useCursor(cursor);
  const [text, setText] = useState("");
  const x = place?.own ? drawing.x[place.at] : undefined;
  const said =
    place === null || x === undefined
      ? ""
      : [
          `${xName} ${formatX(x)}`,
          ...lines.slice(0, 8).map((line, nth) => {
            const at = pointAt(drawing.own[nth], place.at);
            const value = line.columns.mean[at];
            return `${line.label} ${typeof value === "number" ? formatY(value) : (line.columns.odd[at] ?? "no value")}`;
          }),
        ].join(", ");
  useEffect(() => {
    const timer = window.setTimeout(() => setText(said), PAUSE_MS);
    return () => window.clearTimeout(timer);
  }, [said]);
  return (
    <span aria-live="polite" className="sr-only">
      {text}
    </span>
  );
}

function Signs({ markers, domain }: Pick<LineChartProps, "markers" | "domain">) {
  const kinds = kindsWithin(markers, domain);
  if (kinds.length === 0) return null;
  const within = markers.filter(({ x }) => x >= domain[0] && x <= domain[1]);
  return (
    <>
      <span aria-hidden="true">{kinds.map((kind) => ` · ${MARKER_SIGNS[kind]}`)}</span>
      <span className="sr-only">
        {`. ${within
          .slice(0, 20)
          .map(({ text }) => text)
          .join(", ")}`}
      </span>
    </>
  );
}

interface RangeProps {
  cursor: CursorStore;
  line: Line;
  own: Int32Array | undefined;
  formatY: (value: number) => string;
}

function Range({ cursor, line, own, formatY }: RangeProps) {
  const place = useCursor(cursor);
  const at = place ? pointAt(own, place.at) : line.columns.x.length - 1;
  const [low, high] = [line.columns.min[at], line.columns.max[at]];
  if (typeof low !== "number" || typeof high !== "number" || low === high) return null;
  return <span className="whitespace-nowrap">{`${formatY(low)} to ${formatY(high)}`}</span>;
}

function summary({ title, unit, lines, formatY, xName, formatX }: LineChartProps): string {
  const named = `${title}${unit ? ` in ${unit}` : ""}`;
  const [only] = lines;
  if (lines.length !== 1 || !only) return `${named}: ${lines.length} lines`;
  const { columns } = only;
  const values = columns.mean.filter((value) => value !== null);
  const last = columns.last.findLast((value) => value !== null);
  if (last === undefined || last === null) return `${named}: no finite value`;
  const low = values.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY);
  const high = values.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
  const end = columns.x.at(-1);
  const until = end === undefined ? "" : ` up to ${xName} ${formatX(end)}`;
  return `${named}${until}: last ${formatY(last)}, between ${textOf(low, null)} and ${textOf(high, null)}`;
}
