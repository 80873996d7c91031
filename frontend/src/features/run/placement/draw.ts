import type { PlacedDevice } from "@/api/schema";
import { type Box, hatch } from "@/components/charts/canvas";
import { inkOn } from "@/lib/replica-colors";
import { token } from "@/lib/theme";
import { drawGlyph } from "./draw-glyph";
import { type Cell, DOCKED, type Layout, PADDING } from "./layout";
import type { Paint } from "./paint";

/** Numbers are left out below this cell size. */
const LEAST_FOR_TEXT = 12;

export interface MapColors {
  background: string;
  surface: string;
  line: string;
  strong: string;
  text: string;
  muted: string;
  accent: string;
  font: string;
  mono: string;
}

export function mapColors(): MapColors {
  return {
    background: token("--bg"),
    surface: token("--surface"),
    line: token("--line"),
    strong: token("--line-strong"),
    text: token("--text"),
    muted: token("--muted"),
    accent: token("--accent"),
    font: token("--font-ui"),
    mono: token("--font-code"),
  };
}

interface Marked {
  selected: number;
  hovered: number;
}

/** Outline of each group, with its label above and outside. */
export function drawGroups(context: CanvasRenderingContext2D, layout: Layout, colors: MapColors): void {
  context.textBaseline = "alphabetic";
  // The bus comes down along the left edge; the label makes room for it.
  const aside = layout.rails === "bus" ? PADDING + 4 : 0;
  for (const group of layout.groups) {
    context.strokeStyle = colors.strong;
    context.lineWidth = 1;
    roundRect(
      context,
      { x: group.x + 0.5, y: group.y + 0.5, width: group.width - 1, height: group.height - 1 },
      6,
    );
    context.stroke();
    context.fillStyle = colors.text;
    context.font = `600 13px ${colors.font}`;
    const label = fitText(context, group.label, group.width - 8);
    context.fillText(label, group.x + aside, group.y - 8);
    const after = group.x + aside + context.measureText(label).width + 8;
    context.font = `450 12px ${colors.font}`;
    context.fillStyle = colors.muted;
    if (after + context.measureText(group.note).width <= group.x + group.width)
      context.fillText(group.note, after, group.y - 8);
    if (group.origin) drawAxes(context, group, group.origin, layout, colors);
  }
}

/** The numbers of columns and rows on a slice, in the margin of its outline. */
function drawAxes(
  context: CanvasRenderingContext2D,
  group: Layout["groups"][number],
  [x, y]: [number, number],
  { cellSize, gap }: Layout,
  colors: MapColors,
): void {
  if (cellSize < LEAST_FOR_TEXT) return;
  context.font = `450 9px ${colors.mono}`;
  context.fillStyle = colors.muted;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let column = 0; column < group.columns; column++)
    context.fillText(
      String(x + column),
      group.x + PADDING + column * (cellSize + gap) + cellSize / 2,
      group.y + PADDING / 2,
    );
  for (let row = 0; row < group.rows; row++)
    context.fillText(
      String(y + row),
      group.x + PADDING / 2,
      group.y + PADDING + row * (cellSize + gap) + cellSize / 2,
    );
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
}

/** The links of a slice: each chip to its neighbours along x and y. */
export function drawLinks(context: CanvasRenderingContext2D, layout: Layout, colors: MapColors): void {
  if (layout.kind !== "torus" || layout.gap < 2) return;
  const { cellSize: size, gap } = layout;
  const taken = new Set(layout.cells.map(({ group, column, row }) => `${group}/${column}/${row}`));
  context.fillStyle = colors.strong;
  for (const { group, column, row } of layout.cells) {
    const box = layout.groups[group];
    if (!box) continue;
    const [left, top] = [box.x + PADDING + column * (size + gap), box.y + PADDING + row * (size + gap)];
    const width = Math.min(4, gap);
    if (taken.has(`${group}/${column + 1}/${row}`))
      context.fillRect(left + size, top + (size - width) / 2, gap, width);
    if (taken.has(`${group}/${column}/${row + 1}`))
      context.fillRect(left + (size - width) / 2, top + size, width, gap);
  }
}

/** `planned`: scheduled and not confirmed yet, with outlines and hatching in the place of fills. */
export function drawCells(
  context: CanvasRenderingContext2D,
  layout: Layout,
  devices: readonly PlacedDevice[],
  paints: readonly Paint[],
  planned: boolean,
): void {
  const look = { layout, devices, planned, colors: mapColors(), rows: rowsOf(layout, devices) };
  for (const cell of layout.cells) {
    const paint = paints[cell.device];
    if (paint && cell.group !== DOCKED) drawCell(context, cell, paint, look);
  }
}

/** Around the selected cell, and the one under the pointer: over the map, which is not drawn again for them. */
export function drawMarks(
  context: CanvasRenderingContext2D,
  layout: Layout,
  { selected, hovered }: Marked,
): void {
  if (layout.detail === "hosts") return;
  const { accent, text } = mapColors();
  const [chosen, pointed] = [layout.cells[selected], layout.cells[hovered]];
  if (pointed && hovered !== selected) outline(context, pointed, text, 1, 2);
  if (chosen) outline(context, chosen, accent, 2, 3);
}

interface Look {
  layout: Layout;
  devices: readonly PlacedDevice[];
  planned: boolean;
  colors: MapColors;
  /** Cells of one replica that stand in one row. */
  rows: ReadonlyMap<string, readonly Cell[]>;
}

function rowsOf(layout: Layout, devices: readonly PlacedDevice[]): Map<string, Cell[]> {
  const rows = new Map<string, Cell[]>();
  if (devices.every(({ logical }) => !logical)) return rows;
  for (const cell of layout.cells) {
    const key = rowOf(cell, devices);
    const row = rows.get(key) ?? [];
    row.push(cell);
    rows.set(key, row);
  }
  return rows;
}

function rowOf({ group, row, device }: Cell, devices: readonly PlacedDevice[]): string {
  return `${group} ${row} ${devices[device]?.replica}`;
}

function drawCell(context: CanvasRenderingContext2D, cell: Cell, paint: Paint, look: Look): void {
  const { colors } = look;
  const fill = paint.fill && !look.planned ? token(paint.fill) : null;
  const ink = fill ? inkOn(fill) : colors.text;
  const radius = cell.width >= 20 ? 3 : 0;
  roundRect(context, inset(cell, fill ? 0 : 0.5), radius);
  context.fillStyle = fill ?? colors.background;
  context.fill();
  if (fill) drawJoint(context, cell, fill, ink, look);
  if (fill) hatch(context, hatchBox(cell), paint.hatch, withAlpha(ink, 0.6), cell.width >= 40 ? 5 : 4);
  else drawHollow(context, cell, radius, look);
  if (look.layout.detail === "large") drawTexts(context, cell, paint, ink, look);
  else if (cell.width >= 2 * LEAST_FOR_TEXT)
    drawCentered(context, cell, paint.title, ink, `600 11px ${colors.font}`);
  drawOverlay(context, cell, paint, ink, colors);
}

/** Logical devices of one replica are joined to one tile, each a step lighter or darker than the one before. */
function drawJoint(
  context: CanvasRenderingContext2D,
  cell: Cell,
  fill: string,
  ink: string,
  look: Look,
): void {
  const { layout, devices, rows } = look;
  const logical = devices[cell.device]?.logical;
  if (!logical) return;
  const before = rows
    .get(rowOf(cell, devices))
    ?.find((other) => other.x < cell.x && cell.x - other.x - other.width <= layout.gap);
  context.fillStyle = fill;
  if (before) {
    const from = before.x + before.width - 3;
    context.fillRect(from, cell.y, cell.x - from + 3, cell.height);
  }
  context.fillStyle = withAlpha(ink === "#000000" ? "#ffffff" : "#000000", Math.min(0.36, 0.18 * logical));
  roundRect(context, cell, 3);
  context.fill();
}

/** Large cells carry the hatch as a band at the left of the top edge, so that no text stands on it. */
function hatchBox(cell: Cell): Box {
  if (cell.width < 40) return cell;
  return { x: cell.x, y: cell.y, width: cell.width, height: cell.width < 56 ? 10 : 26 };
}

function drawHollow(context: CanvasRenderingContext2D, cell: Cell, radius: number, look: Look): void {
  if (look.planned) hatch(context, cell, 1, look.colors.line, 6);
  context.strokeStyle = look.colors.strong;
  context.lineWidth = 1;
  context.setLineDash(look.planned ? [4, 3] : []);
  roundRect(context, inset(cell, 0.5), radius);
  context.stroke();
  context.setLineDash([]);
}

function drawTexts(
  context: CanvasRenderingContext2D,
  cell: Cell,
  paint: Paint,
  ink: string,
  look: Look,
): void {
  const { colors, planned } = look;
  const size = cell.width >= 64 ? 20 : cell.width >= 40 ? 15 : 12;
  const titled = cell.width >= 40 && cell.width < 64 && !planned;
  const box = titled ? { ...cell, height: cell.height - 10 } : cell;
  drawCentered(context, box, paint.title, ink, `600 ${size}px ${colors.font}`);
  if (cell.width < 40 || planned) return;
  const small = cell.width < 56;
  context.font = `450 ${small ? 10 : 11}px ${colors.mono}`;
  context.textBaseline = "alphabetic";
  context.fillStyle = ink;
  context.fillText(
    fitText(context, paint.name, cell.width - 8),
    cell.x + (small ? 4 : 6),
    cell.y + cell.height - (small ? 6 : 7),
  );
  if (paint.glyph && !small) drawGlyph(context, paint.glyph, cell.x + cell.width - 21, cell.y + 6, ink);
}

function drawOverlay(
  context: CanvasRenderingContext2D,
  cell: Cell,
  paint: Paint,
  ink: string,
  colors: MapColors,
): void {
  if (!paint.overlay) return;
  context.strokeStyle = ink;
  context.lineWidth = cell.width >= 24 ? 2 : 1;
  context.beginPath();
  if (paint.overlay === "dead") {
    context.moveTo(cell.x + 3, cell.y + 3);
    context.lineTo(cell.x + cell.width - 3, cell.y + cell.height - 3);
    context.moveTo(cell.x + cell.width - 3, cell.y + 3);
    context.lineTo(cell.x + 3, cell.y + cell.height - 3);
    context.stroke();
  } else if (paint.overlay === "silent") {
    context.setLineDash([4, 3]);
    context.strokeRect(cell.x + 2, cell.y + 2, cell.width - 4, cell.height - 4);
    context.setLineDash([]);
  } else {
    const corner = cell.width / 3;
    context.moveTo(cell.x, cell.y + corner);
    context.lineTo(cell.x, cell.y);
    context.lineTo(cell.x + corner, cell.y);
    context.closePath();
    context.fillStyle = colors.background;
    context.fill();
  }
}

function drawCentered(
  context: CanvasRenderingContext2D,
  box: Box,
  text: string,
  ink: string,
  font: string,
): void {
  context.font = font;
  context.fillStyle = ink;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, box.x + box.width / 2, box.y + box.height / 2 + 1);
  context.textAlign = "left";
}

function outline(
  context: CanvasRenderingContext2D,
  cell: Cell,
  color: string,
  width: number,
  away: number,
): void {
  context.strokeStyle = color;
  context.lineWidth = width;
  roundRect(context, inset(cell, -away), 4);
  context.stroke();
}

export function roundRect(context: CanvasRenderingContext2D, box: Box, radius: number): void {
  context.beginPath();
  context.roundRect(box.x, box.y, box.width, box.height, radius);
}

export function fitText(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let kept = text;
  while (kept.length > 1 && context.measureText(`${kept}…`).width > width) kept = kept.slice(0, -1);
  return `${kept}…`;
}

function inset(box: Box, by: number): Box {
  return { x: box.x + by, y: box.y + by, width: box.width - 2 * by, height: box.height - 2 * by };
}

function withAlpha(color: string, alpha: number): string {
  const channels = [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));
  return `rgb(${channels.join(" ")} / ${alpha})`;
}
