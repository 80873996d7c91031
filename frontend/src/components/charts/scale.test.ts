import { describe, expect, it } from "vitest";
import { heatScale } from "./heat-strip";
import { niceTicks, scaleOver } from "./scale";

describe("scaleOver", () => {
  it("keeps every finite value inside and ignores the others", () => {
    const scale = scaleOver([1, 5, Number.NaN, Number.POSITIVE_INFINITY, 3]);

    const shares = [1, 3, 5].map((value) => scale?.at(value) ?? -1);

    expect(shares.every((share) => share > 0 && share < 1)).toBe(true);
    expect(shares[1]).toBeCloseTo(0.5);
  });

  it("puts equal values in the middle and has nothing for none", () => {
    expect(scaleOver([7, 7])?.at(7)).toBeCloseTo(0.5);
    expect(scaleOver([0])?.at(0)).toBeCloseTo(0.5);
    expect(scaleOver([Number.NaN])).toBeNull();
  });
});

describe("niceTicks", () => {
  it("gives round numbers within the ends", () => {
    expect(niceTicks(0.03, 1.02, 4)).toEqual([0.2, 0.4, 0.6, 0.8, 1]);
    expect(niceTicks(-12, 31, 4)).toEqual([-10, 0, 10, 20, 30]);
    expect(niceTicks(5.301, 5.309, 4)).toEqual([5.302, 5.304, 5.306, 5.308]);
    expect(niceTicks(1, 1, 4)).toEqual([]);
  });
});

describe("heatScale", () => {
  it("is centred on zero only where values lie on both sides of it", () => {
    expect(heatScale([-1, 4])).toEqual({ low: -1, middle: 0, high: 4 });
    expect(heatScale([2, 4, Number.NaN])).toEqual({ low: 2, middle: 3, high: 4 });
    expect(heatScale([Number.NaN])).toBeNull();
  });
});
