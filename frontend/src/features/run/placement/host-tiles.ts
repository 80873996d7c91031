import { token } from "@/lib/theme";
import { type MapColors, roundRect } from "./draw";
import type { HostGroup } from "./groups";
import type { Layout } from "./layout";
import type { Paint } from "./paint";

/** Above 10,000 devices: a tile per host, and in it a bar of what its devices do (`drawHostBars`). */
export function drawHostTiles(context: CanvasRenderingContext2D, layout: Layout, colors: MapColors): void {
  context.strokeStyle = colors.strong;
  context.lineWidth = 1;
  context.fillStyle = colors.text;
  context.font = `450 10px ${colors.mono}`;
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  layout.cells.forEach(({ x, y, width, height }, i) => {
    const host = layout.hosts[i];
    if (!host) return;
    roundRect(context, { x: x + 0.5, y: y + 0.5, width: width - 1, height: height - 1 }, 3);
    context.stroke();
    context.fillText(shortName(context, host, width - 8), x + 4, y + 14);
  });
}

/** Over the tiles, which are not drawn again for other colours. Colour by colour, as each change of it takes time. */
export function drawHostBars(
  context: CanvasRenderingContext2D,
  layout: Layout,
  paints: readonly Paint[],
  colors: MapColors,
): void {
  const { wide, narrow } = piecesOf(layout, barsOf(paints, colors));
  const dead = token("--bad");
  // What is less than a pixel has one over its neighbours, the lost ones last: one among many is seen.
  for (const pieces of [wide, narrow])
    for (const [color, rectangles] of pieces) if (color !== dead) fillAll(context, color, rectangles);
  for (const pieces of [wide, narrow]) fillAll(context, dead, pieces.get(dead) ?? []);
}

/** By colour, of each rectangle its left end, top and width, one after the other. */
type Rectangles = Map<string, number[]>;

function fillAll(context: CanvasRenderingContext2D, color: string, rectangles: readonly number[]): void {
  context.fillStyle = color;
  for (let at = 0; at < rectangles.length; at += 3)
    context.fillRect(
      rectangles[at] as number,
      rectangles[at + 1] as number,
      rectangles[at + 2] as number,
      10,
    );
}

/** The colour of each device. A token is looked up once, not ten thousand times. */
function barsOf(paints: readonly Paint[], colors: MapColors): string[] {
  const known = new Map<Paint["fill"], string>([[null, colors.line]]);
  const dead = token("--bad");
  return paints.map(({ fill, overlay }) => {
    if (overlay === "dead") return dead;
    const found = known.get(fill) ?? token(fill ?? "--line");
    known.set(fill, found);
    return found;
  });
}

/** Below so many pixels a device has no gap beside it: neighbours that do the same are one rectangle. */
const LEAST_FOR_GAP = 3;

/** Those of at least a pixel, and those that would have none. */
function piecesOf(layout: Layout, bars: readonly string[]): { wide: Rectangles; narrow: Rectangles } {
  const wide: Rectangles = new Map();
  const narrow: Rectangles = new Map();
  layout.cells.forEach((cell, host) => {
    const members = layout.hosts[host]?.members ?? [];
    const [x, y, width] = [cell.x + 4, cell.y + cell.height - 14, cell.width - 8];
    const share = width / members.length;
    const gap = share < LEAST_FOR_GAP ? 0 : 0.5;
    for (let from = 0, to = 1; from < members.length; from = to++) {
      const color = bars[members[from] ?? -1] ?? "";
      while (!gap && to < members.length && bars[members[to] ?? -1] === color) to++;
      const [left, right] = [Math.round(x + from * share), Math.round(x + to * share)];
      if (right > left) add(wide, color, left, y, right - left - gap);
      else add(narrow, color, Math.min(left, Math.floor(x + width) - 1), y, 1);
    }
  });
  return { wide, narrow };
}

function add(rectangles: Rectangles, color: string, left: number, top: number, width: number): void {
  const found = rectangles.get(color);
  if (found) found.push(left, top, width);
  else rectangles.set(color, [left, top, width]);
}

/** Tiles are equally wide in all layouts. */
const shortNames = new WeakMap<HostGroup, string>();

function shortName(context: CanvasRenderingContext2D, host: HostGroup, width: number): string {
  const known = shortNames.get(host) ?? fitEnd(context, host.name, width);
  shortNames.set(host, known);
  return known;
}

/** Names of hosts differ at their end: that is what stays. */
function fitEnd(context: CanvasRenderingContext2D, name: string, width: number): string {
  const whole = context.measureText(name).width;
  if (whole <= width) return name;
  // Letters of this font are equally wide; where another one stands in for it, the rest is cut one by one.
  let kept = name.slice(name.length - Math.max(1, Math.floor((width * name.length) / whole) - 1));
  while (kept.length > 1 && context.measureText(`…${kept}`).width > width) kept = kept.slice(1);
  return `…${kept}`;
}
