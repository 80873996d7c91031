import type uPlot from "uplot";
import { token } from "@/lib/theme";

export interface ChartColors {
  text: string;
  line: string;
  strong: string;
  curve: string;
  band: string;
  font: string;
}

/** Colours from the tokens: uPlot's own are black on any background. */
export function chartColors(): ChartColors {
  return {
    text: token("--muted"),
    line: token("--line"),
    strong: token("--line-strong"),
    curve: token("--accent"),
    band: withAlpha(token("--accent"), "2e"),
    font: `11px ${token("--font-ui")}`,
  };
}

export interface ChartSettings {
  width: number;
  height: number;
  colors: ChartColors;
  /** Charts of one group share their cursor. */
  group: string;
  log: boolean;
  /** How points are joined; straight lines if left out. */
  path?: uPlot.Series.PathBuilder | undefined;
  formatX: (value: number) => string;
  formatY: (value: number) => string;
  /** A range was drawn with the pointer. */
  onRange: (from: number, to: number) => void;
  onCursor: (index: number | null) => void;
}

/** Up to so many points are shown one by one. */
export const MOST_DOTS = 24;
/** Room above and below the values, as a share of their span. */
const MARGIN = 0.1;

/** The numbers that the vertical axis spans; around a value that never changes, close enough to read it. */
export function yRange(_chart: unknown, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  if (low === high) {
    const room = low === 0 ? 1 : Math.abs(low) * MARGIN;
    return [low - room, high + room];
  }
  const room = (high - low) * MARGIN;
  // Values on one side of zero keep it as their floor where it is near.
  const floor = low >= 0 && low - room * 2 < 0 ? 0 : low - room;
  const ceiling = high <= 0 && high + room * 2 > 0 ? 0 : high + room;
  return [floor, ceiling];
}

/** Series are x, mean, max, min; the band lies between the last two. */
export function chartOptions(settings: ChartSettings): uPlot.Options {
  const { width, height, colors, group, log, path } = settings;
  const joined = path ? { paths: path } : {};
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 12, 0, 0],
    scales: { x: { time: false }, y: log ? { distr: 3, log: 10 } : { range: yRange } },
    cursor: {
      sync: { key: group, setSeries: false, scales: ["x", null] },
      drag: { x: true, y: false, setScale: false },
      points: { size: 7, fill: colors.curve, stroke: colors.curve },
    },
    axes: [
      axis(colors, { size: 22, space: 72, values: settings.formatX }),
      axis(colors, { size: 56, space: 32, values: settings.formatY }),
    ],
    series: [
      {},
      {
        stroke: colors.curve,
        width: 1.5,
        // Few values are dots as well: a single one would draw no line at all.
        points: { show: (chart) => chart.data[0].length <= MOST_DOTS, size: 5, fill: colors.curve },
        spanGaps: false,
        ...joined,
      },
      { stroke: "transparent", points: { show: false }, ...joined },
      { stroke: "transparent", points: { show: false }, ...joined },
    ],
    bands: [{ series: [2, 3], fill: colors.band }],
    hooks: {
      setSelect: [(chart) => selected(chart, settings.onRange)],
      setCursor: [(chart) => settings.onCursor(chart.cursor.idx ?? null)],
    },
  };
}

function axis(
  colors: ChartColors,
  some: { size: number; space: number; values: (value: number) => string },
): uPlot.Axis {
  return {
    stroke: colors.text,
    font: colors.font,
    size: some.size,
    space: some.space,
    gap: 4,
    grid: { stroke: colors.line, width: 1 },
    ticks: { show: false },
    border: { show: true, stroke: colors.strong, width: 1 },
    values: (_chart, splits) => splits.map((value) => (value === null ? "" : some.values(value))),
  };
}

/** A drag of a few pixels is a click. */
const LEAST_DRAG = 6;

function selected(chart: uPlot, onRange: (from: number, to: number) => void): void {
  const { left, width } = chart.select;
  if (width < LEAST_DRAG) return;
  onRange(chart.posToVal(left, "x"), chart.posToVal(left + width, "x"));
  chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

function withAlpha(color: string, alpha: string): string {
  return /^#[0-9a-f]{6}$/i.test(color) ? `${color}${alpha}` : color;
}
