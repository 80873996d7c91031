import { describe, expect, it } from "vitest";
import { apartTicks, axisOf, metricAxis, textRoom } from "./axis";
import { bestOf, type Outcome } from "./best";
import { describeOutcome } from "./parallel-plot";

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

  it("gives whole numbers that a float mixes up places of their own, and shows where they differ", () => {
    const seeds = [2n ** 60n, 2n ** 60n + 1n];
    const axis = axisOf("seed", seeds);

    expect(seeds.map(axis.at)).toEqual([0, 1]);
    expect(axis.ticks.map(({ text }) => text)).toEqual(["…6846976", "…6846977"]);
    expect(axisOf("seed", [1, 2n ** 60n]).at(2n ** 60n)).toBe(1);
    expect(metricAxis("found", [seeds[0]]).at(seeds[0])).toBe(0.5);
  });

  it("has room for its longest text, and drops those that would touch", () => {
    const axis = axisOf(
      "seed",
      [1, 2, 3, 4].map((n) => 2n ** 60n + BigInt(n)),
    );

    expect(textRoom(axis)).toBeGreaterThan(8 * 6);
    expect(apartTicks(axis, (share) => 600 * share)).toHaveLength(4);
    expect(apartTicks(axis, (share) => 150 * share).map(({ at }) => at)).toEqual([0, 2 / 3]);
  });

  it("names the best run by all digits of its numbers", () => {
    const row = (index: number, found: bigint) =>
      ({ index, run: `run_${index}`, parameters: { seed: found }, metrics: { found } }) as unknown as Outcome;
    const rows = [row(0, 2n ** 60n), row(1, 2n ** 60n + 1n)];

    const best = bestOf(rows, { name: "found", better: "higher" }) as Outcome;

    expect(describeOutcome(best, ["seed"], "found")).toBe(
      "found 1152921504606846977 with seed=1152921504606846977",
    );
  });
});
