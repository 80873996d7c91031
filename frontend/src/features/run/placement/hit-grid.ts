import type { Cell } from "./layout";

/** Finds the cell under a point in constant time: cells by the squares of a coarse grid they touch. */
export class HitGrid {
  private readonly buckets = new Map<string, number[]>();

  constructor(
    private readonly cells: readonly Cell[],
    private readonly pitch: number,
  ) {
    cells.forEach((cell, index) => {
      for (const key of this.touched(cell)) {
        const bucket = this.buckets.get(key);
        if (bucket) bucket.push(index);
        else this.buckets.set(key, [index]);
      }
    });
  }

  /** Index of the cell that holds the point, or -1. */
  at(x: number, y: number): number {
    const bucket = this.buckets.get(`${Math.floor(x / this.pitch)}:${Math.floor(y / this.pitch)}`) ?? [];
    return bucket.find((index) => contains(this.cells[index], x, y)) ?? -1;
  }

  private *touched(cell: Cell): Generator<string> {
    const [left, right] = [Math.floor(cell.x / this.pitch), Math.floor((cell.x + cell.width) / this.pitch)];
    const [top, bottom] = [Math.floor(cell.y / this.pitch), Math.floor((cell.y + cell.height) / this.pitch)];
    for (let column = left; column <= right; column++) {
      for (let row = top; row <= bottom; row++) yield `${column}:${row}`;
    }
  }
}

function contains(cell: Cell | undefined, x: number, y: number): boolean {
  return (
    cell !== undefined && x >= cell.x && x < cell.x + cell.width && y >= cell.y && y < cell.y + cell.height
  );
}
