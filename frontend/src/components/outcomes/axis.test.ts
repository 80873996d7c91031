import { describe, expect, it } from "vitest";
import { axisOf, metricAxis } from "./axis";

describe("an axis of a sweep", () => {
  it("spreads numbers by size and those that span much by their logarithm", () => {
    expect([5, 6, 10].map(axisOf("epochs", [5, 6, 10]).at)).toEqual([0, 0.2, 1]);
    const rate = axisOf("rate", [0.001, 0.01, 0.1]);
    expect(rate.at(0.01)).toBeCloseTo(0.5);
    expect(rate.ticks.map(({ text }) => text)).toEqual(["0.001", "0.01", "0.1"]);
  });

  it("gives each other value a place of its own and none to what is missing", () => {
    const axis = axisOf("layers", [[64], [64, 32], "none", undefined]);
    expect([[64], [64, 32], "none", undefined].map(axis.at)).toEqual([0, 0.5, 1, null]);
  });

  it("has a place for the largest numbers, and one for those that differ by rounding", () => {
    expect([-1.7e308, 1.7e308].map(metricAxis("x", [-1.7e308, 1.7e308]).at)).toEqual([0, 1]);
    expect(metricAxis("x", [0.1, 0.10000000000000002]).ticks).toHaveLength(1);
  });

  it("puts a single value in the middle and marks outcomes by round numbers", () => {
    expect(axisOf("x", [3, 3]).at(3)).toBe(0.5);
    expect(metricAxis("accuracy", [0.81, 0.89]).ticks.map(({ text }) => text)).toEqual([
      "0.82",
      "0.84",
      "0.86",
      "0.88",
    ]);
  });
});
