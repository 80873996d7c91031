import { describe, expect, it } from "vitest";
import type { ProfileLanes } from "@/api/schema";
import { blocksOf, operationAt, operationsOf, sentenceOf, ticksOf } from "./profile";

const lanes = {
  operations: [
    { name: "while.1", is_collective: false },
    { name: "psum.7", is_collective: true },
  ],
  lanes: [
    { device: "dev_a", begins_ns: [0, 2e6], durations_ns: [10e6, 3e6], operations: [0, 1] },
    { device: "dev_b", begins_ns: [], durations_ns: [], operations: [] },
  ],
} as unknown as ProfileLanes; // the columns that are read

describe("a lane of a traced step", () => {
  const operations = operationsOf(lanes, "dev_a");

  it("tells at each moment the innermost operation", () => {
    expect([1, 3, 6, 10].map((at) => sentenceOf(operationAt(operations, at)))).toEqual([
      "while.1, computing, 10 ms from 0 ms on",
      "psum.7, in collectives, 3 ms from 2 ms on",
      "while.1, computing, 10 ms from 0 ms on",
      "idle",
    ]);
    expect(operationsOf(lanes, "dev_b")).toEqual([]);
  });

  it("draws what is seen, and what lies within an operation over it", () => {
    const blocks = blocksOf(operations, { from: 4, to: 8 });
    expect(blocks.map(({ x, width }) => [x, width])).toEqual([
      [0, 1],
      [0, 0.25],
    ]);
    expect(blocksOf(operations, { from: 6, to: 8 })).toHaveLength(1);
  });

  it("has round moments under it", () => {
    expect(ticksOf({ from: 0, to: 1.02 }, 6)).toEqual([0, 0.2, 0.4, 0.6000000000000001, 0.8]);
    expect(ticksOf({ from: 130, to: 190 }, 6)).toEqual([130, 140, 150, 160, 170, 180]);
  });
});
