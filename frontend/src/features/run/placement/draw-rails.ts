import { fitText, type MapColors, roundRect } from "./draw";
import { drawGlyph } from "./draw-glyph";
import { BESIDE, type Cell, DOCKED, GROUP_GAP, type Layout, PADDING, RAIL } from "./layout";

const RING_HEIGHT = 8;
const ARROW = 3;

/** Mirrored: a ring under each row that every copy is tied to; the copies are kept equal over it. */
export function drawRing(
  context: CanvasRenderingContext2D,
  layout: Layout,
  colors: MapColors,
  joinsHosts: boolean,
): void {
  context.strokeStyle = colors.strong;
  context.lineWidth = 1;
  for (const row of rowsOf(layout)) {
    const [first, last] = [row[0], row.at(-1)];
    if (!first || !last) continue;
    const top = Math.round(first.y + first.height + (RAIL - RING_HEIGHT) / 2 + 3) + 0.5;
    const [left, right] = [middle(first) - RING_HEIGHT, middle(last) + RING_HEIGHT];
    roundRect(context, { x: left, y: top, width: right - left, height: RING_HEIGHT }, RING_HEIGHT / 2);
    for (const cell of row) strokeLine(context, middle(cell), cell.y + cell.height + 2, middle(cell), top);
    context.stroke();
  }
  joinRings(context, layout);
  if (layout.kind === "host" && joinsHosts) joinHosts(context, layout);
}

/** The all-reduce goes over all hosts: between two of them it crosses the network. */
function joinHosts(context: CanvasRenderingContext2D, layout: Layout): void {
  const rows = rowsOf(layout);
  context.beginPath();
  layout.groups.forEach((group, index) => {
    const from = rows.findLast((row) => row[0]?.group === index)?.at(-1);
    const to = rows.find((row) => row[0]?.group === index + 1)?.[0];
    if (!from || !to) return;
    const [begin, end] = [ringMiddle(from), ringMiddle(to)];
    const [left, right] = [middle(to) - RING_HEIGHT, middle(from) + RING_HEIGHT];
    const turn = Math.round(group.x + group.width + GROUP_GAP / 2) + 0.5;
    context.moveTo(right, begin);
    if (to.x > from.x) {
      context.lineTo(turn, begin);
      context.lineTo(turn, end);
    } else {
      const under = Math.round(group.y + group.height + GROUP_GAP / 4) + 0.5;
      const margin = Math.round(to.x - PADDING) - BESIDE + 0.5;
      context.lineTo(group.x + group.width - PADDING / 2, begin);
      context.lineTo(group.x + group.width - PADDING / 2, under);
      context.lineTo(margin, under);
      context.lineTo(margin, end);
    }
    context.lineTo(left, end);
  });
  context.stroke();
}

/** Rows of a group hang on one trunk in its left margin. */
function joinRings(context: CanvasRenderingContext2D, layout: Layout): void {
  const rows = rowsOf(layout);
  context.beginPath();
  rows.forEach((row, i) => {
    const [cell, next] = [row[0], rows[i + 1]?.[0]];
    if (!cell || !next || next.group !== cell.group) return;
    const x = Math.round(cell.x - PADDING / 2) + 0.5;
    const [from, to] = [ringMiddle(cell), ringMiddle(next)];
    strokeLine(context, middle(cell) - RING_HEIGHT, from, x, from);
    context.lineTo(x, to);
    context.lineTo(middle(next) - RING_HEIGHT, to);
  });
  context.stroke();
}

function ringMiddle(cell: Cell): number {
  return Math.round(cell.y + cell.height + (RAIL - RING_HEIGHT) / 2 + 3) + 0.5 + RING_HEIGHT / 2;
}

/** Central storage: a cylinder in a dock and lines to every replica: values go out, gradients come in. */
export function drawBus(
  context: CanvasRenderingContext2D,
  layout: Layout,
  storage: { title: string; note: string; width: number },
  colors: MapColors,
): void {
  const { dock } = layout;
  if (!dock) return;
  context.strokeStyle = colors.strong;
  context.lineWidth = storage.width;
  const main = dock.y + dock.height + 10.5;
  const trunk = dock.x + PADDING / 2 + 0.5;
  context.beginPath();
  for (const row of rowsOf(layout)) {
    const [first, last] = [row[0], row.at(-1)];
    const group = first && layout.groups[first.group];
    if (!first || !last || !group) continue;
    const gutter = Math.round(group.x + PADDING / 2) + 0.5;
    const y = Math.round(first.y - RAIL / 2 - 3) + 0.5;
    strokeLine(context, trunk, dock.y + dock.height, trunk, main);
    context.lineTo(gutter, main);
    context.lineTo(gutter, y);
    context.lineTo(middle(last) + 4, y);
    for (const cell of row) spoke(context, middle(cell), y, cell.y - 2);
  }
  context.stroke();
  drawDock(context, layout, storage, colors);
}

/** Two strokes side by side: an arrow into the device for the value, one out of it for the gradient. */
function spoke(context: CanvasRenderingContext2D, x: number, top: number, bottom: number): void {
  strokeLine(context, x - 4, top, x - 4, bottom);
  strokeLine(context, x - 4 - ARROW, bottom - ARROW, x - 4, bottom);
  context.lineTo(x - 4 + ARROW, bottom - ARROW);
  strokeLine(context, x + 4, bottom, x + 4, top);
  strokeLine(context, x + 4 - ARROW, top + ARROW + 1, x + 4, top + 1);
  context.lineTo(x + 4 + ARROW, top + ARROW + 1);
}

function drawDock(
  context: CanvasRenderingContext2D,
  { dock }: Layout,
  storage: { title: string; note: string },
  colors: MapColors,
): void {
  if (!dock) return;
  roundRect(context, { x: dock.x + 0.5, y: dock.y + 0.5, width: dock.width - 1, height: dock.height - 1 }, 6);
  context.fillStyle = colors.surface;
  context.fill();
  context.lineWidth = 1;
  context.strokeStyle = colors.strong;
  context.stroke();
  context.save();
  context.translate(dock.x + 12, dock.y + 10);
  context.scale(2, 2);
  drawGlyph(context, "cylinder", 0, 0, colors.text);
  context.restore();
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  context.fillStyle = colors.text;
  context.font = `600 13px ${colors.font}`;
  context.fillText(fitText(context, storage.title, dock.width - 64), dock.x + 54, dock.y + 23);
  context.fillStyle = colors.muted;
  context.font = `450 12px ${colors.font}`;
  context.fillText(fitText(context, storage.note, dock.width - 64), dock.x + 54, dock.y + 40);
}

/** Cells by group and row, each row from left to right. */
function rowsOf(layout: Layout): Cell[][] {
  const rows = new Map<string, Cell[]>();
  for (const cell of layout.cells.filter((each) => each.group !== DOCKED)) {
    const key = `${cell.group}:${cell.row}`;
    const row = rows.get(key) ?? [];
    rows.set(key, row);
    row.push(cell);
  }
  for (const row of rows.values()) row.sort((a, b) => a.x - b.x);
  return [...rows.values()];
}

function middle(cell: Cell): number {
  return Math.round(cell.x + cell.width / 2) + 0.5;
}

function strokeLine(context: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
}
