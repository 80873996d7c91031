import { describe, expect, it } from "vitest";
import type { TimePiece } from "@/api/schema";
import { attemptsOf, blocksOf, pieceAt, sentenceOf, ticksOf, within, zoomed } from "./model";

function piece(begin: number, end: number, attempt: number | null, spent: TimePiece["spent"]): TimePiece {
  return { begin_s: begin, end_s: end, attempt, host_name: attempt === null ? null : "alpha", spent };
}

const PIECES = [
  piece(0, 5, null, { queue: 5 }),
  piece(5, 7, 1, { launch: 2 }),
  piece(7, 11, 1, { steps: 3, input: 1 }),
];

describe("a run's timeline", () => {
  it("has round moments, never more than there is room for", () => {
    expect(ticksOf({ from: 0, to: 21 }, 6)).toEqual([0, 5, 10, 15, 20]);
    expect(ticksOf({ from: 61, to: 200 }, 3)).toEqual([120, 180]);
    expect(ticksOf({ from: 0, to: 86_400 * 40 }, 6)).toHaveLength(6);
  });

  it("puts names that share a piece on each other, each as high as its share", () => {
    const blocks = blocksOf(PIECES, { from: 5, to: 15 });
    expect(blocks.map(({ name }) => name)).toEqual(["launch", "steps", "input"]);
    expect(blocks[0]).toMatchObject({ x: 0, width: 0.2, y: 0, height: 1 });
    expect(blocks[1]).toMatchObject({ x: 0.2, width: 0.4, y: 0, height: 0.75 });
    expect(blocks[2]).toMatchObject({ x: 0.2, y: 0.75, height: 0.25 });
  });

  it("cuts a piece at the edges of the window", () => {
    expect(blocksOf(PIECES, { from: 6, to: 8 }).map(({ x, width }) => [x, width])).toEqual([
      [0, 0.5],
      [0.5, 0.5],
      [0.5, 0.5],
    ]);
  });

  it("says what a moment went into, the longest first", () => {
    expect(sentenceOf(pieceAt(PIECES, 8) as TimePiece)).toBe(
      "attempt 1 on alpha, from 7.0 s to 11 s: steps 3.0 s, input 1.0 s",
    );
    expect(pieceAt(PIECES, 11)).toBeUndefined();
  });

  it("knows when each attempt was, over all lanes", () => {
    const lanes = [
      { rank: 0, pieces: PIECES },
      { rank: 1, pieces: [piece(5, 13, 1, { steps: 8 })] },
    ];
    expect(attemptsOf(lanes)).toEqual([{ number: 1, begin: 5, end: 13 }]);
  });

  it("zooms within the run, and out to all of it", () => {
    expect(zoomed({ from: 0, to: 20 }, 0.5, 20)).toEqual({ from: 5, to: 15 });
    expect(zoomed({ from: 5, to: 15 }, 2, 20)).toBeUndefined();
    expect(within({ from: -3, to: 4 }, 20)).toEqual({ from: 0, to: 4 });
    expect(within({ from: 4, to: 4 }, 20)).toBeUndefined();
  });
});
