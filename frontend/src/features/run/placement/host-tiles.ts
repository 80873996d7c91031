import { token } from "@/lib/theme";
import { type MapColors, roundRect } from "./draw";
import type { HostGroup } from "./groups";
import type { Cell, Layout } from "./layout";
import type { Paint } from "./paint";

/** Above 10,000 devices: a tile per host with a bar of what its devices do. */
export function drawHostTiles(
  context: CanvasRenderingContext2D,
  layout: Layout,
  paints: readonly Paint[],
  colors: MapColors,
): void {
  context.strokeStyle = colors.strong;
  context.lineWidth = 1;
  context.font = `450 10px ${colors.mono}`;
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  const bars = barsOf(paints, colors);
  layout.cells.forEach((cell, i) => {
    const host = layout.hosts[i];
    if (host) drawTile(context, cell, host, bars, colors);
  });
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

function drawTile(
  context: CanvasRenderingContext2D,
  cell: Cell,
  host: HostGroup,
  bars: readonly string[],
  colors: MapColors,
): void {
  const { x, y, width, height } = cell;
  roundRect(context, { x: x + 0.5, y: y + 0.5, width: width - 1, height: height - 1 }, 3);
  context.stroke();
  context.fillStyle = colors.text;
  context.fillText(shortName(context, host, width - 8), x + 4, y + 14);
  const share = (width - 8) / host.members.length;
  host.members.forEach((member, at) => {
    context.fillStyle = bars[member] ?? colors.line;
    context.fillRect(x + 4 + at * share, y + height - 14, Math.max(1, share - 0.5), 10);
  });
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
