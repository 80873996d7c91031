import type { PlacedDevice } from "@/api/schema";
import { token } from "@/lib/theme";
import { type MapColors, roundRect } from "./draw";
import { groupByHost } from "./groups";
import type { Layout } from "./layout";
import type { Paint } from "./paint";

/** Above 10,000 devices: a tile per host with a bar of what its devices do. */
export function drawHostTiles(
  context: CanvasRenderingContext2D,
  layout: Layout,
  devices: readonly PlacedDevice[],
  paints: readonly Paint[],
  colors: MapColors,
): void {
  const hosts = groupByHost(devices);
  layout.cells.forEach((cell, i) => {
    const host = hosts[i];
    if (!host) return;
    roundRect(
      context,
      { x: cell.x + 0.5, y: cell.y + 0.5, width: cell.width - 1, height: cell.height - 1 },
      3,
    );
    context.strokeStyle = colors.strong;
    context.lineWidth = 1;
    context.stroke();
    context.fillStyle = colors.text;
    context.font = `450 10px ${colors.mono}`;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    context.fillText(fitEnd(context, host.name, cell.width - 8), cell.x + 4, cell.y + 14);
    const members = host.members.map((member) => paints[member]).filter((paint) => paint !== undefined);
    const width = (cell.width - 8) / Math.max(1, members.length);
    members.forEach((paint, at) => {
      context.fillStyle =
        paint.overlay === "dead" ? token("--bad") : paint.fill ? token(paint.fill) : colors.line;
      context.fillRect(cell.x + 4 + at * width, cell.y + cell.height - 14, Math.max(1, width - 0.5), 10);
    });
  });
}

/** Names of hosts differ at their end: that is what stays. */
function fitEnd(context: CanvasRenderingContext2D, name: string, width: number): string {
  let kept = name;
  while (kept.length > 1 && context.measureText(kept === name ? kept : `…${kept}`).width > width)
    kept = kept.slice(1);
  return kept === name ? name : `…${kept}`;
}
