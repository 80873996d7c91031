import { fitText, type MapColors } from "./draw";
import { BESIDE, GROUP_GAP, type Layout, PADDING } from "./layout";

/** More devices than a ring is drawn for: one line from each host to the next, with what crosses where there is room. */
export function drawHostLinks(
  context: CanvasRenderingContext2D,
  layout: Layout,
  label: string,
  colors: MapColors,
): void {
  context.strokeStyle = colors.strong;
  context.lineWidth = 2;
  context.fillStyle = colors.muted;
  context.font = `450 12px ${colors.font}`;
  context.textBaseline = "alphabetic";
  context.beginPath();
  for (const line of hostLinks(layout)) {
    const [[x, y], ...turns] = line;
    context.moveTo(x, y);
    for (const [toX, toY] of turns) context.lineTo(toX, toY);
    if (turns.length > 1)
      context.fillText(fitText(context, label, layout.width - x - 8), x + 8, y + GROUP_GAP / 2 + 4);
  }
  context.stroke();
}

type Point = [number, number];
type Line = [Point, ...Point[]];

/** Lines in the space between hosts: of tiles along each row and down the first column, else from outline to outline. */
export function hostLinks(layout: Layout): Line[] {
  if (layout.kind !== "host") return [];
  return layout.detail === "hosts" ? tileLinks(layout) : outlineLinks(layout);
}

function tileLinks({ cells, cellSize, gap }: Layout): Line[] {
  const taken = new Set(cells.map(({ column, row }) => `${column}/${row}`));
  return cells.flatMap(({ x, y, column, row }): Line[] => {
    const [right, under, half] = [x + cellSize, y + cellSize, cellSize / 2];
    const lines: Line[] = [];
    if (taken.has(`${column + 1}/${row}`))
      lines.push([
        [right, y + half],
        [right + gap, y + half],
      ]);
    if (column === 0 && taken.has(`0/${row + 1}`))
      lines.push([
        [x + half, under],
        [x + half, under + gap],
      ]);
    return lines;
  });
}

function outlineLinks({ groups }: Layout): Line[] {
  const middle = (group: Layout["groups"][number]) => group.y + group.height / 2;
  return groups.flatMap((from, index): Line[] => {
    const to = groups[index + 1];
    if (!to) return [];
    if (to.x > from.x) {
      const y = from.y + Math.min(from.height, to.height) / 2;
      return [
        [
          [from.x + from.width, y],
          [to.x, y],
        ],
      ];
    }
    const bottom = Math.max(
      ...groups.filter((group) => group.y === from.y).map((group) => group.y + group.height),
    );
    const [under, margin] = [bottom + GROUP_GAP / 4, to.x - BESIDE];
    const start = from.x + PADDING;
    return [
      [
        [start, from.y + from.height],
        [start, under],
        [margin, under],
        [margin, middle(to)],
        [to.x, middle(to)],
      ],
    ];
  });
}
