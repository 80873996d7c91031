import type uPlot from "uplot";
import type { ChartColors } from "./uplot-options";

/** Something that happened at one place of x, of which every chart of the run tells. */
export interface Marker {
  x: number;
  kind: "checkpoint" | "attempt" | "version" | "not finite";
  /** `Checkpoint at step 400`. */
  text: string;
}

/** How each kind reads in the legend of a chart. */
export const MARKER_SIGNS: Record<Marker["kind"], string> = {
  checkpoint: "◆ checkpoint",
  attempt: "╎ new attempt",
  version: "┃ new version",
  "not finite": "▼ not finite",
};

/** Which kinds stand within the domain. */
export function kindsWithin(
  markers: readonly Marker[],
  [first, last]: readonly [number, number],
): Marker["kind"][] {
  const seen = new Set(markers.filter(({ x }) => x >= first && x <= last).map(({ kind }) => kind));
  return (Object.keys(MARKER_SIGNS) as Marker["kind"][]).filter((kind) => seen.has(kind));
}

/** Half the width of the widest sign. */
const SIGN_PX = 4;

/** Draws the markers over a chart, and the place that is picked. Of those on one pixel only the first. */
export function drawMarkers(
  chart: uPlot,
  markers: readonly Marker[],
  picked: number | null,
  colors: ChartColors,
): void {
  const { ctx, bbox } = chart;
  const px = window.devicePixelRatio || 1;
  ctx.save();
  ctx.beginPath();
  // Signs at both ends are seen whole: a run is often saved, or not finite, at its last step.
  const beside = SIGN_PX * px;
  ctx.rect(bbox.left - beside, bbox.top - 6 * px, bbox.width + 2 * beside, bbox.height + 6 * px);
  ctx.clip();
  const drawn = new Set<string>();
  for (const { x, kind } of markers) {
    const at = Math.round(chart.valToPos(x, "x", true));
    if (at < bbox.left || at > bbox.left + bbox.width || drawn.has(`${kind}${at}`)) continue;
    drawn.add(`${kind}${at}`);
    if (kind === "checkpoint") diamond(ctx, at, bbox.top + bbox.height - 5 * px, 3.5 * px, colors.text);
    else if (kind === "not finite") triangle(ctx, at, bbox.top, SIGN_PX * px, colors.warn);
    else vertical(ctx, at, bbox, kind === "attempt" ? [3 * px, 3 * px] : [], colors.warn, px);
  }
  if (picked !== null) vertical(ctx, chart.valToPos(picked, "x", true), bbox, [], colors.accent, px);
  ctx.restore();
}

function vertical(
  ctx: CanvasRenderingContext2D,
  at: number,
  { top, height }: uPlot.BBox,
  dash: number[],
  color: string,
  px: number,
): void {
  ctx.beginPath();
  ctx.setLineDash(dash);
  ctx.lineWidth = px;
  ctx.strokeStyle = color;
  ctx.moveTo(Math.round(at) + 0.5, top);
  ctx.lineTo(Math.round(at) + 0.5, top + height);
  ctx.stroke();
}

function diamond(ctx: CanvasRenderingContext2D, x: number, y: number, size: number, color: string): void {
  fill(ctx, color, [
    [x, y - size],
    [x + size, y],
    [x, y + size],
    [x - size, y],
  ]);
}

function triangle(ctx: CanvasRenderingContext2D, x: number, y: number, size: number, color: string): void {
  fill(ctx, color, [
    [x - size, y - size],
    [x + size, y - size],
    [x, y + size],
  ]);
}

function fill(ctx: CanvasRenderingContext2D, color: string, corners: readonly (readonly [number, number])[]) {
  ctx.beginPath();
  for (const [x, y] of corners) ctx.lineTo(x, y);
  ctx.closePath();
  ctx.fillStyle = color;
  ctx.fill();
}
