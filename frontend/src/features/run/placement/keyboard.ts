import type { Cell, Layout } from "./layout";

const DIRECTIONS: Record<string, readonly [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

/** The cell that a key moves to from `from`, or `null` where the key means nothing here or leads nowhere. */
export function moveTo(layout: Layout, from: number, key: string): number | null {
  const cell = layout.cells[from];
  if (!cell) return layout.cells.length > 0 ? 0 : null;
  if (key === "Home") return 0;
  if (key === "End") return layout.cells.length - 1;
  if (key === "PageUp" || key === "PageDown") return sameSpot(layout, cell, key === "PageDown" ? 1 : -1);
  const direction = DIRECTIONS[key];
  return direction ? nearest(layout.cells, from, direction) : null;
}

/** The same column and row in the next group: along z for slices, along hosts otherwise. */
function sameSpot(layout: Layout, cell: Cell, by: number): number | null {
  const inGroup = layout.cells.flatMap((other, index) => (other.group === cell.group + by ? [index] : []));
  const same = inGroup.find((index) => {
    const other = layout.cells[index];
    return other?.column === cell.column && other.row === cell.row;
  });
  return same ?? inGroup[0] ?? null;
}

/** The closest cell ahead; being off the line costs double, so that rows are kept. */
function nearest(cells: readonly Cell[], from: number, [dx, dy]: readonly [number, number]): number | null {
  const here = centre(cells[from]);
  let best: number | null = null;
  let least = Number.POSITIVE_INFINITY;
  cells.forEach((cell, index) => {
    const there = centre(cell);
    const ahead = (there.x - here.x) * dx + (there.y - here.y) * dy;
    const aside = Math.abs((there.x - here.x) * dy) + Math.abs((there.y - here.y) * dx);
    if (index === from || ahead < 1 || aside > ahead * 4) return;
    const cost = ahead + 2 * aside;
    if (cost < least) [least, best] = [cost, index];
  });
  return best;
}

function centre(cell: Cell | undefined): { x: number; y: number } {
  return cell ? { x: cell.x + cell.width / 2, y: cell.y + cell.height / 2 } : { x: 0, y: 0 };
}
