import { useEffect, useEffectEvent, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { ChartTable, type TimeChartColumns } from "./chart-table";
import { chartColors, chartOptions, drawnAs, MOST_DOTS } from "./uplot-options";
import { useSize } from "./use-size";
import { useTheme } from "./use-theme";

interface TimeChartProps {
  title: string;
  unit: string;
  columns: TimeChartColumns;
  /** What one bucket holds. */
  caption: string;
  /** Charts of one group share their cursor. */
  group: string;
  log: boolean;
  /** Each value was measured since the point before it, such as a rate. */
  since: boolean;
  xName: string;
  /** Both ends of x: charts that are looked at together have the same. */
  domain: readonly [number, number];
  formatX: (value: number) => string;
  formatY: (value: number) => string;
  onRange: (from: number, to: number) => void;
  onReset: () => void;
}

const HEIGHT = 180;

const lines = uPlot.paths.linear?.();
const steps = uPlot.paths.stepped?.({ align: -1 });

/** Many measurements make a curve; a line between two of a few would tell of speeds that nobody measured. */
const stepsOfFew: uPlot.Series.PathBuilder = (chart, ...rest) =>
  (chart.data[0].length <= MOST_DOTS ? steps : lines)?.(chart, ...rest) ?? null;

/** A curve with its band between smallest and largest value, a shared cursor, and the same numbers as a table. */
export function TimeChart(props: TimeChartProps) {
  const { title, unit, columns, caption, group, log, since, formatX, formatY, onRange, onReset } = props;
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const { width } = useSize(box);
  const theme = useTheme();
  const [cursor, setCursor] = useState<number | null>(null);
  const range = useEffectEvent(onRange);
  const xText = useEffectEvent(formatX);
  const [first, last] = props.domain;
  const domain = useEffectEvent((): [number, number] => [first, last]);
  const places = useMemo(() => drawnAs([columns.min, columns.max], log), [columns, log]);
  const numberAt = useEffectEvent((drawn: number) => places.from(drawn));
  const drawn = useEffectEvent((): uPlot.AlignedData => {
    const column = (values: (number | null)[]) =>
      values.map((value) => (value === null ? null : places.to(value)));
    return [columns.x, column(columns.mean), column(columns.max), column(columns.min)];
  });
  const known = width > 0;

  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme is read through its tokens
  useEffect(() => {
    if (!box.current || !known) return;
    const options = chartOptions({
      width: box.current.clientWidth,
      height: HEIGHT,
      colors: chartColors(),
      group,
      log,
      path: since ? stepsOfFew : undefined,
      formatX: (value) => xText(value),
      domain: () => domain(),
      numberAt: (drawn) => numberAt(drawn),
      onRange: (from, to) => range(from, to),
      onCursor: setCursor,
    });
    const made = new uPlot(options, drawn(), box.current);
    chart.current = made;
    return () => {
      made.destroy();
      chart.current = null;
    };
  }, [known, theme, group, log, since]);

  useEffect(() => {
    if (width > 0) chart.current?.setSize({ width, height: HEIGHT });
  }, [width]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: what is drawn depends on them
  useEffect(() => {
    chart.current?.setData(drawn());
  }, [columns, places, first, last]);

  const shown = cursor ?? columns.x.length - 1;
  return (
    <figure
      aria-label={summary(props)}
      data-domain={`${first} ${last}`}
      data-points={columns.count.filter((count) => count > 0).length}
      data-testid={`chart-${title}`}
    >
      <figcaption className="flex items-baseline gap-2">
        <span className="truncate font-strong" title={title}>
          {title}
        </span>
        {unit && <span className="text-muted text-xs">{unit}</span>}
        <span className="ml-auto whitespace-nowrap text-xs">
          <span className="text-muted">
            {props.xName} {columns.x[shown] === undefined ? "–" : formatX(columns.x[shown])}
          </span>{" "}
          <Readout at={shown} columns={columns} formatY={formatY} pointed={cursor !== null} />
        </span>
      </figcaption>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a double click undoes a zoom; the button above the charts does it too */}
      <div className="mt-1" onDoubleClick={onReset} ref={box} style={{ height: HEIGHT }} />
      <p className="flex justify-between gap-3 text-2xs text-muted">
        <span>
          {caption}
          {log && belowZero(columns)}
        </span>
        <span>{rangeText(columns, shown, formatY)}</span>
      </p>
      <ChartTable columns={columns} formatX={formatX} title={title} xName={props.xName} />
    </figure>
  );
}

interface ReadoutProps {
  columns: TimeChartColumns;
  at: number;
  /** Under the pointer it is the number that is drawn there; else the newest. */
  pointed: boolean;
  formatY: (value: number) => string;
}

function Readout({ columns, at, pointed, formatY }: ReadoutProps) {
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

function belowZero({ min }: TimeChartColumns): string {
  const hidden = min.filter((value) => value !== null && value <= 0).length;
  return hidden > 0 ? ` · ${hidden} at or below zero, which a log scale cannot show` : "";
}

function rangeText({ min, max }: TimeChartColumns, at: number, format: (value: number) => string): string {
  const [low, high] = [min[at], max[at]];
  if (typeof low !== "number" || typeof high !== "number" || low === high) return "";
  return `${format(low)} to ${format(high)}`;
}

function summary({ title, unit, columns, formatY, xName, formatX }: TimeChartProps): string {
  const values = columns.mean.filter((value) => value !== null);
  const last = columns.last.findLast((value) => value !== null);
  if (last === undefined || last === null) return `${title}: no finite value`;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const end = columns.x.at(-1);
  const until = end === undefined ? "" : ` up to ${xName} ${formatX(end)}`;
  return `${title}${unit ? ` in ${unit}` : ""}${until}: last ${formatY(last)}, between ${formatY(low)} and ${formatY(high)}`;
}
