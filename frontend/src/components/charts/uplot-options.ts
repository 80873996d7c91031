import type uPlot from "uplot";
import { token } from "@/lib/theme";
import { rangeMark } from "./range-mark";
import { leastSpan, niceTicks, ROUNDING, tickTexts } from "./scale";

export interface ChartColors {
  text: string;
  line: string;
  strong: string;
  accent: string;
  warn: string;
  font: string;
}

/** Colours from the tokens: uPlot's own are black on any background. */
export function chartColors(): ChartColors {
  return {
    text: token("--muted"),
    line: token("--line"),
    strong: token("--line-strong"),
    accent: token("--accent"),
    warn: token("--warn"),
    font: `11px ${token("--font-ui")}`,
  };
}

/** One drawn column, as uPlot is told of it. */
export interface LayerLook {
  part: "main" | "raw" | "max" | "min";
  color: string;
  dash: number[];
  wide: boolean;
}

interface ChartSettings {
  width: number;
  height: number;
  colors: ChartColors;
  /** Charts of one group share their cursor. */
  group: string;
  log: boolean;
  layers: readonly LayerLook[];
  /** Ends of the vertical axis that are chosen, as they are drawn. */
  limits: () => { low: number | null; high: number | null };
  /** How points are joined; straight lines if left out. */
  path?: uPlot.Series.PathBuilder | undefined;
  formatX: (value: number) => string;
  /** Marks of x, at most so many; round numbers if left out. */
  ticksX?: ((low: number, high: number, most: number) => number[]) | undefined;
  /** Both ends of x, the same for all charts that are looked at together. */
  domain: () => [number, number];
  /** The number that stands where `drawn` is drawn. */
  numberAt: (drawn: number) => number;
  /** A range was drawn with the pointer. */
  onRange: (from: number, to: number) => void;
  onCursor: (index: number | null) => void;
  /** Whether any of it is in the window. */
  isSeen: () => boolean;
  /** Draws over the curves. */
  onDrawn: (chart: uPlot) => void;
}

/** Up to so many points are shown one by one. */
export const MOST_DOTS = 24;
/** Room above and below the values, as a share of their span. */
const MARGIN = 0.1;

/** The numbers that the vertical axis spans; around one that never changes but by rounding, close enough to read it. */
export function yRange(_chart: unknown, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  if (high - low <= Math.max(leastSpan(low, high, ROUNDING.float32), 1e-300)) {
    const room = Math.max(Math.abs(low), Math.abs(high)) * MARGIN;
    return room < 1e-300 ? [-1, 1] : [low - room, high + room];
  }
  const room = (high - low) * MARGIN;
  // Values on one side of zero keep it as their floor where it is near.
  const floor = low >= 0 && low - room * 2 < 0 ? 0 : low - room;
  const ceiling = high <= 0 && high + room * 2 > 0 ? 0 : high + room;
  return [floor, ceiling];
}

/** Whole powers of ten around all values, of which these are the logarithms. */
export function logRange(_chart: unknown, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const first = Math.floor(low);
  return [first, Math.min(Math.log10(Number.MAX_VALUE), Math.max(first + 1, Math.ceil(high)))];
}

/** How values are drawn, and back: as logarithms, or by a factor that keeps their size what uPlot's axes can name. */
export interface Drawn {
  to: (value: number) => number | null;
  from: (drawn: number) => number;
}

export function drawnAs(columns: readonly (readonly (number | null)[])[], log: boolean): Drawn {
  // Numbers of zero and below have no place on a logarithmic axis.
  if (log) return { to: (value) => (value > 0 ? Math.log10(value) : null), from: (drawn) => 10 ** drawn };
  const largest = columns.reduce(
    (most, column) => column.reduce<number>((found, value) => Math.max(found, Math.abs(value ?? 0)), most),
    0,
  );
  if (largest === 0 || (largest > 1e-6 && largest < 1e9))
    return { to: (value) => value, from: (drawn) => drawn };
  const factor = 2 ** Math.max(-1000, Math.min(1000, -Math.round(Math.log2(largest))));
  return { to: (value) => value * factor, from: (drawn) => drawn / factor };
}

const TICK_PX = 32;
const DIGIT_PX = 6.4;
/** Room that a number of the horizontal axis has, and a moment, which may be longer: `27 Nov 16:30`. */
const STEP_PX = 72;
const MOMENT_PX = 88;

/** Room at the right of a plot, so that the number at its end is seen whole. */
export function roomOfEnd(text: string): number {
  return Math.max(12, Math.ceil((DIGIT_PX * text.length) / 2) + 2);
}

function ySplits(log: boolean): uPlot.Axis.Splits {
  return (chart, _axis, low, high) => {
    const most = Math.max(2, Math.floor(chart.height / TICK_PX) - 1);
    if (!log) return niceTicks(low, high, most);
    const every = Math.ceil((high - low + 1) / most);
    return Array.from({ length: Math.floor((high - low) / every) + 1 }, (_, i) => low + i * every);
  };
}

/** Indices of points that no line reaches: both neighbours are holes. What is undefined is another line's place. */
export function alone(values: ArrayLike<number | null | undefined>): number[] {
  const found: number[] = [];
  // The last number that had a hole, or nothing, before it, and has had no neighbour since.
  let candidate = -1;
  let afterHole = true;
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at];
    if (value === undefined) continue;
    if (value === null) {
      if (candidate >= 0) found.push(candidate);
      candidate = -1;
      afterHole = true;
      continue;
    }
    candidate = afterHole ? at : -1;
    afterHole = false;
  }
  if (candidate >= 0) found.push(candidate);
  return found;
}

/** A column for each layer; a band lies between each `max` and the `min` after it. */
export function chartOptions(settings: ChartSettings): uPlot.Options {
  const { width, height, colors, group, log, layers, path, ticksX } = settings;
  const range = log ? logRange : yRange;
  return {
    width,
    height,
    legend: { show: false },
    // Half of the number at the right end stands beside the plot.
    padding: [8, () => roomOfEnd(settings.formatX(settings.domain()[1])), 0, 0],
    scales: {
      x: { time: false, range: settings.domain },
      y: { range: (chart, low, high) => within(range(chart, low, high), settings.limits()) },
    },
    cursor: {
      sync: {
        key: group,
        setSeries: false,
        scales: ["x", null],
        // Each chart that follows costs every move of the pointer a part of its frame: those out of sight follow nothing, and
        // none while a range is drawn, which is its own chart's until it is released.
        filters: {
          sub: (type, from) => type !== "mousemove" || (settings.isSeen() && from.select.width === 0),
        },
      },
      y: false,
      drag: { x: true, y: false, setScale: false },
      points: { show: (_chart, series) => dotOf(layers, series) },
    },
    axes: [
      {
        ...axis(colors, { size: 22, space: STEP_PX }),
        ...(ticksX && { splits: (chart, _axis, low, high) => ticksX(low, high, chart.width / MOMENT_PX) }),
        values: (_chart, splits) => splits.map((value) => (value === null ? "" : settings.formatX(value))),
      },
      {
        ...axis(colors, { size: 56, space: TICK_PX }),
        size: (_chart, texts) =>
          Math.max(56, 12 + DIGIT_PX * Math.max(0, ...(texts ?? []).map((one) => one.length))),
        splits: ySplits(log),
        filter: (_chart, splits) => splits,
        values: (_chart, splits) => tickTexts(splits.map(settings.numberAt)),
      },
    ],
    series: [{}, ...layers.map((layer) => seriesOf(layer, path ? { paths: path } : {}))],
    bands: layers.flatMap(({ part, color }, at) =>
      part === "max" ? [{ series: [at + 1, at + 2] as [number, number], fill: withAlpha(color, "2e") }] : [],
    ),
    plugins: [rangeMark(withAlpha(colors.accent, "24"))],
    hooks: {
      setSelect: [(chart) => reportSelection(chart, settings.onRange)],
      setCursor: [(chart) => settings.onCursor(chart.cursor.idx ?? null)],
      draw: [settings.onDrawn],
    },
  };
}

function seriesOf({ part, color, dash, wide }: LayerLook, joined: Partial<uPlot.Series>): uPlot.Series {
  if (part === "max" || part === "min") return { stroke: "transparent", points: { show: false }, ...joined };
  if (part === "raw")
    return { stroke: withAlpha(color, "59"), width: 1, points: { show: false }, spanGaps: false, ...joined };
  return {
    stroke: color,
    width: wide ? 2.5 : 1.5,
    ...(dash.length > 0 && { dash }),
    // Few values are dots as well, and so is one between two holes: it would draw no line at all.
    points: {
      show: (chart) => chart.data[0].length <= MOST_DOTS,
      filter: (chart, series, show) => (show ? null : alone(chart.data[series] ?? [])),
      size: 5,
      fill: color,
    },
    spanGaps: false,
    ...joined,
  };
}

/** More dots on one vertical are a smear. */
const MOST_CURSOR_DOTS = 8;

/** The dot that follows the cursor on a curve. uPlot takes anything else for none, though its types do not say so. */
function dotOf(layers: readonly LayerLook[], series: number): HTMLElement {
  const mains = layers.filter(({ part }) => part === "main").length;
  if (layers[series - 1]?.part !== "main" || mains > MOST_CURSOR_DOTS)
    return undefined as unknown as HTMLElement;
  const dot = document.createElement("div");
  Object.assign(dot.style, { width: "7px", height: "7px", margin: "-3.5px" });
  return dot;
}

function within(
  [low, high]: [number, number],
  chosen: { low: number | null; high: number | null },
): [number, number] {
  const ends: [number, number] = [chosen.low ?? low, chosen.high ?? high];
  // One end that is chosen may lie beyond all values.
  return ends[0] < ends[1] ? ends : chosen.low !== null ? [ends[0], ends[0] + 1] : [ends[1] - 1, ends[1]];
}

function axis(colors: ChartColors, some: { size: number; space: number }): uPlot.Axis {
  return {
    stroke: colors.text,
    font: colors.font,
    size: some.size,
    space: some.space,
    gap: 4,
    grid: { stroke: colors.line, width: 1 },
    ticks: { show: false },
    border: { show: true, stroke: colors.strong, width: 1 },
  };
}

/** A drag of a few pixels is a click. */
const LEAST_DRAG = 6;

function reportSelection(chart: uPlot, onRange: (from: number, to: number) => void): void {
  const { left, width } = chart.select;
  const [from, to] = [chart.posToVal(left, "x"), chart.posToVal(left + width, "x")];
  chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  // The release is told to all charts of the group; the one under the pointer has drawn the range.
  if (width >= LEAST_DRAG && chart.cursor.event) onRange(from, to);
}

function withAlpha(color: string, alpha: string): string {
  return /^#[0-9a-f]{6}$/i.test(color) ? `${color}${alpha}` : color;
}
