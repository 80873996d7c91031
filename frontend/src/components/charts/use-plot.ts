import { type RefObject, useEffect, useEffectEvent, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { token } from "@/lib/theme";
import type { CursorStore } from "./cursor";
import { dropDraw, queueDraw, queueFirstDraw } from "./draw-queue";
import type { Drawing, Layer, Line } from "./drawing";
import { lineStyle } from "./line-style";
import { drawMarkers, type Marker } from "./markers";
import { chartColors, chartOptions, type LayerLook, MOST_DOTS } from "./uplot-options";
import { useTheme } from "./use-theme";

export interface PlotSettings {
  lines: readonly Line[];
  drawing: Drawing;
  height: number;
  group: string;
  log: boolean;
  since: boolean;
  domain: readonly [number, number];
  limits: { low?: number | undefined; high?: number | undefined };
  markers: readonly Marker[];
  picked: number | null;
  formatX: (value: number) => string;
  ticksX?: ((low: number, high: number, most: number) => number[]) | undefined;
  onRange: (from: number, to: number) => void;
}

const lines = uPlot.paths.linear?.();
const steps = uPlot.paths.stepped?.({ align: -1 });

/** Many measurements make a curve; a line between two of a few would tell of speeds that nobody measured. */
const stepsOfFew: uPlot.Series.PathBuilder = (chart, ...rest) =>
  (chart.data[0].length <= MOST_DOTS ? steps : lines)?.(chart, ...rest) ?? null;

/** Keeps a drawn chart in `box`: made when there is room, drawn again in one of the next frames when something changes. */
export function usePlot(
  box: RefObject<HTMLDivElement | null>,
  cursor: CursorStore,
  settings: PlotSettings,
): RefObject<uPlot | null> {
  const chart = useRef<uPlot | null>(null);
  const shown = useRef<unknown[]>([]);
  const seen = useRef(true);
  const theme = useTheme();
  const now = useEffectEvent(() => settings);
  const make = useEffectEvent(
    (node: HTMLDivElement, width: number) => new uPlot(optionsOf(width), dataOf(), node),
  );
  const dataOf = () =>
    [settings.drawing.x, ...settings.drawing.layers.map(({ values }) => values)] as uPlot.AlignedData;
  const optionsOf = (width: number) => {
    const colors = chartColors();
    return chartOptions({
      width,
      height: settings.height,
      colors,
      group: settings.group,
      log: settings.log,
      layers: looksOf(settings.lines, settings.drawing),
      limits: () => limitsOf(now()),
      path: settings.since ? stepsOfFew : undefined,
      formatX: (value) => now().formatX(value),
      ticksX: settings.ticksX && ((...ends) => now().ticksX?.(...ends) ?? []),
      domain: () => [...now().domain],
      numberAt: (drawn) => now().drawing.places.from(drawn),
      onRange: (from, to) => now().onRange(from, to),
      isSeen: () => seen.current,
      onCursor: (at) => cursor.set(at === null ? null : placeOf(chart.current, at, now().drawing)),
      onDrawn: (made) => drawMarkers(made, now().markers, now().picked, colors),
    });
  };
  // What a chart is made of: a change of these makes another one.
  const shape = looksKey(settings);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme is read through its tokens, and so is the shape through its key
  useEffect(() => {
    const node = box.current;
    if (!node) return;
    const owner = {};
    // The observer tells the width once the page is laid out: to ask for it before lays the page out for each chart.
    const size = new ResizeObserver(() => {
      const width = node.clientWidth;
      if (width === 0) return;
      if (chart.current) return chart.current.setSize({ width, height: now().height });
      queueFirstDraw(owner, () => {
        shown.current = shownOf(now());
        chart.current = make(node, width);
      });
    });
    size.observe(node);
    const sight = new IntersectionObserver((entries) => {
      seen.current = entries.at(-1)?.isIntersecting ?? true;
    });
    sight.observe(node);
    return () => {
      size.disconnect();
      sight.disconnect();
      dropDraw(owner);
      chart.current?.destroy();
      chart.current = null;
    };
  }, [theme, shape]);

  useEffect(() => {
    const plot = chart.current;
    if (plot && plot.height !== settings.height) plot.setSize({ width: plot.width, height: settings.height });
  }, [settings.height]);

  const redraw = useEffectEvent(() => {
    const next = shownOf(settings);
    if (next.every((each, at) => each === shown.current[at])) return;
    shown.current = next;
    chart.current?.setData(dataOf());
  });
  const [first, last] = settings.domain;
  const { low, high } = settings.limits;
  // biome-ignore lint/correctness/useExhaustiveDependencies: what is drawn depends on them
  useEffect(() => {
    queueDraw(chart, redraw);
    return () => dropDraw(chart);
  }, [settings.drawing, settings.markers, settings.picked, first, last, low, high]);
  return chart;
}

/** What a picture depends on. */
function shownOf({ drawing, markers, picked, domain, limits }: PlotSettings): unknown[] {
  return [drawing, markers, picked, ...domain, limits.low, limits.high];
}

function looksOf(lines: readonly Line[], { layers }: Drawing): LayerLook[] {
  return layers.map(({ line, part }) => {
    const { color, dash } = lineStyle(lines[line]?.style ?? null);
    return { part, color: token(color), dash, wide: lines[line]?.strong === true };
  });
}

function looksKey({ lines, drawing, group, log, since, ticksX }: PlotSettings): string {
  const layers = drawing.layers.map(({ line, part }) => `${part}${line}`);
  return JSON.stringify([
    lines.map(({ style, strong }) => [style, strong]),
    layers,
    group,
    log,
    since,
    !ticksX,
  ]);
}

function limitsOf({ limits, drawing }: PlotSettings): { low: number | null; high: number | null } {
  const place = (value: number | undefined) => (value === undefined ? null : drawing.places.to(value));
  return { low: place(limits.low), high: place(limits.high) };
}

/** The cursor's place, with the line whose value is nearest to the pointer. */
function placeOf(chart: uPlot | null, at: number, { layers }: Drawing) {
  const top = chart?.cursor.top ?? -1;
  const own =
    chart?.over.matches(":hover, :focus-visible") === true ||
    document.activeElement === chart?.root.parentElement;
  if (!chart || top < 0) return { at, line: null, own };
  let [line, least] = [null as number | null, Number.POSITIVE_INFINITY];
  for (const layer of layers) {
    const value = layer.part === "main" ? nearestValue(layer, at) : null;
    if (value === null) continue;
    const away = Math.abs(chart.valToPos(value, "y") - top);
    if (away < least) [line, least] = [layer.line, away];
  }
  return { at, line, own };
}

/** How far from its own points a line is still found: bucket ends of runs differ by a few places. */
const REACH = 64;

function nearestValue({ values }: Layer, at: number): number | null {
  for (let off = 0; off < REACH; off += 1) {
    const value = values[at - off] ?? values[at + off];
    if (value !== undefined && value !== null) return value;
    if (values[at - off] === null) return null;
  }
  return null;
}
