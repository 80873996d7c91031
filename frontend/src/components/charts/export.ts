/** What a chart draws, as a file: CSV and SVG from its lines, PNG from the SVG's picture on a canvas. */
import { cell } from "@/lib/csv";
import { token } from "@/lib/theme";
import { drawingOf, type Layer, type Line } from "./drawing";
import { lineStyle } from "./line-style";
import { niceTicks, tickTexts } from "./scale";
import { smoothed } from "./smoothing";
import { logRange, yRange } from "./uplot-options";

export interface Pictured {
  title: string;
  xName: string;
  caption: string;
  lines: readonly Line[];
  log: boolean;
  smooth: number;
  domain: readonly [number, number];
  limits: { low?: number | undefined; high?: number | undefined };
  formatX: (value: number) => string;
  ticksX?: ((low: number, high: number, most: number) => number[]) | undefined;
}

/** A row for each drawn point within the domain; `smoothed` is empty where nothing is smoothed. */
export function csvOfChart({ lines, smooth, domain, xName }: Pictured): string {
  const rows = lines.flatMap(({ label, columns }) => {
    const soft = smooth > 0 ? smoothed(columns.mean, smooth) : [];
    return columns.x.flatMap((x, at) => {
      if (x < domain[0] || x > domain[1]) return [];
      const odd = columns.odd[at];
      const figures = [columns.min[at], columns.mean[at], columns.max[at], columns.last[at] ?? odd, soft[at]];
      return [[cell(label), x, columns.count[at], ...figures.map(figure)].join(",")];
    });
  });
  return `${[`line,${cell(xName)},count,min,mean,max,last,smoothed`, ...rows].join("\r\n")}\r\n`;
}

function figure(value: number | string | null | undefined): string {
  return value === null || value === undefined ? "" : typeof value === "number" ? String(value) : cell(value);
}

const PAD = { left: 64, right: 16, top: 34, bottom: 40 };
const LEGEND_ROW = 16;

export interface Colors {
  bg: string;
  text: string;
  muted: string;
  line: string;
  of: (color: `--${string}`) => string;
}

/** The colours of the theme in force. */
export function pageColors(): Colors {
  return {
    bg: token("--bg"),
    text: token("--text"),
    muted: token("--muted"),
    line: token("--line"),
    of: token,
  };
}

/** The chart as a picture of its own: title, axes, lines with their bands, names. */
export function svgOfChart(chart: Pictured, width: number, height: number, colors: Colors): string {
  const { title, caption, lines, log, smooth, domain, limits } = chart;
  const drawing = drawingOf(lines, log, smooth);
  const [low, high] = spanOf(drawing.layers, log);
  const ends = [limits.low, limits.high].map((end) => (end === undefined ? null : drawing.places.to(end)));
  const [bottom, top] = [ends[0] ?? low, ends[1] ?? high];
  const legend = lines.length > 1 ? lines : [];
  const total = height + legend.length * LEGEND_ROW;
  const x = (value: number) =>
    PAD.left + ((value - domain[0]) / (domain[1] - domain[0] || 1)) * (width - PAD.left - PAD.right);
  const y = (value: number) =>
    height - PAD.bottom - ((value - bottom) / (top - bottom || 1)) * (height - PAD.top - PAD.bottom);
  const clip = `<clipPath id="c"><rect x="${PAD.left}" y="${PAD.top}" width="${width - PAD.left - PAD.right}" height="${height - PAD.top - PAD.bottom}"/></clipPath>`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${total}" viewBox="0 0 ${width} ${total}" font-family="Inter, system-ui, sans-serif" font-size="11">`,
    `<defs>${clip}</defs><rect width="100%" height="100%" fill="${colors.bg}"/>`,
    text(PAD.left, 20, title, colors.text, 'font-size="13" font-weight="600"'),
    ...yMarks(drawing.places.from, bottom, top, log, y, width, colors),
    ...xMarks(chart, x, height, colors),
    `<g clip-path="url(#c)" fill="none">${pathsOf(drawing.layers, drawing.x, lines, x, y, colors)}</g>`,
    text(PAD.left, height - 6, caption, colors.muted),
    ...legend.map(({ label, style }, nth) => {
      const at = height + nth * LEGEND_ROW + 4;
      return `${stroke(`M${PAD.left} ${at}h18`, style, colors)}${text(PAD.left + 24, at + 4, label, colors.text)}`;
    }),
    "</svg>",
  ].join("\n");
}

function spanOf(layers: readonly Layer[], log: boolean): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const { values } of layers) {
    for (const value of values) {
      if (typeof value !== "number") continue;
      [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
  }
  return (log ? logRange : yRange)(null, low, high);
}

function yMarks(
  from: (drawn: number) => number,
  low: number,
  high: number,
  log: boolean,
  y: (value: number) => number,
  width: number,
  colors: Colors,
): string[] {
  const ticks = niceTicks(low, high, 5).filter((tick) => !log || Number.isInteger(tick));
  const texts = tickTexts(ticks.map(from));
  return ticks.map((tick, at) => {
    const place = y(tick).toFixed(1);
    const rule = `<path d="M${PAD.left} ${place}H${width - PAD.right}" stroke="${colors.line}"/>`;
    return rule + text(PAD.left - 8, y(tick) + 4, texts[at] ?? "", colors.muted, 'text-anchor="end"');
  });
}

function xMarks(
  { domain, formatX, ticksX = niceTicks, xName }: Pictured,
  x: (value: number) => number,
  height: number,
  colors: Colors,
) {
  const ticks = ticksX(domain[0], domain[1], 6);
  const marks = ticks.map((tick) =>
    text(x(tick), height - PAD.bottom + 16, formatX(tick), colors.muted, 'text-anchor="middle"'),
  );
  return [...marks, text(PAD.left - 8, height - PAD.bottom + 16, xName, colors.muted, 'text-anchor="end"')];
}

function pathsOf(
  layers: readonly Layer[],
  xs: readonly number[],
  lines: readonly Line[],
  x: (value: number) => number,
  y: (value: number) => number,
  colors: Colors,
): string {
  return layers
    .map(({ line, part, values }, at) => {
      const style = lines[line]?.style ?? null;
      if (part === "min") return "";
      const runs = piecesOf(xs, values, x, y);
      if (part === "main") return runs.map((run) => stroke(`M${run.join("L")}`, style, colors)).join("");
      if (part === "raw")
        return runs.map((run) => stroke(`M${run.join("L")}`, style, colors, 'opacity="0.35"')).join("");
      const under = piecesOf(xs, layers[at + 1]?.values ?? [], x, y);
      const { color } = lineStyle(style);
      return runs
        .map((run, nth) => [...run, ...(under[nth] ?? []).toReversed()].join("L"))
        .map((area) => `<path d="M${area}Z" fill="${colors.of(color)}" opacity="0.18"/>`)
        .join("");
    })
    .join("");
}

/** Stretches without a hole, as corners of a path. */
function piecesOf(
  xs: readonly number[],
  values: readonly (number | null | undefined)[],
  x: (value: number) => number,
  y: (value: number) => number,
): string[][] {
  const pieces: string[][] = [[]];
  for (const [at, value] of values.entries()) {
    if (value === null) pieces.push([]);
    else if (value !== undefined) pieces.at(-1)?.push(`${x(xs[at] ?? 0).toFixed(1)} ${y(value).toFixed(1)}`);
  }
  return pieces.filter((piece) => piece.length > 0);
}

function stroke(d: string, style: number | null, colors: Colors, rest = ""): string {
  const { color, dash } = lineStyle(style);
  const dashed = dash.length > 0 ? ` stroke-dasharray="${dash.join(" ")}"` : "";
  return `<path d="${d}" stroke="${colors.of(color)}" stroke-width="1.5" fill="none" stroke-linecap="round"${dashed} ${rest}/>`;
}

function text(x: number, y: number, said: string, fill: string, rest = ""): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" fill="${fill}" ${rest}>${escaped(said)}</text>`;
}

/** Text of a program: markup in it stays text, and what XML cannot hold is left out. */
function escaped(said: string): string {
  const signs: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return said.replace(/[\p{Cc}\ufffe\uffff]/gu, "�").replace(/[&<>"]/g, (sign) => signs[sign] ?? sign);
}

/** A file's name after a chart's. */
export function fileName(title: string): string {
  return title.replace(/[^\w.-]+/g, "-").slice(0, 60) || "chart";
}
