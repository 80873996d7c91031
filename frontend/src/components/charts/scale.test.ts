import { describe, expect, it } from "vitest";
import { heatScale } from "./heat-strip";
import { niceTicks, scaleOver, tickTexts, timeTicks } from "./scale";

describe("scaleOver", () => {
  it("keeps every finite value inside and ignores the others", () => {
    const scale = scaleOver([1, 5, Number.NaN, Number.POSITIVE_INFINITY, 3]);

    const shares = [1, 3, 5].map((value) => scale?.at(value) ?? -1);

    expect(shares.every((share) => share > 0 && share < 1)).toBe(true);
    expect(shares[1]).toBeCloseTo(0.5);
  });

  it.each([
    [[1.7e308, -1.7e308]],
    [[1.7e308, 1.7e308]],
    [[5e-324, 0]],
    [[0.1, 0.1 + 1e-16]],
    [[-1e-310, -2e-310]],
  ])("has a place for each of %j", (values) => {
    const scale = scaleOver(values);

    for (const value of values) {
      const share = scale?.at(value) ?? -1;
      expect(share).toBeGreaterThanOrEqual(0);
      expect(share).toBeLessThanOrEqual(1);
    }
    expect(scale?.ticks.every(Number.isFinite)).toBe(true);
  });

  it("does not spread the rounding of one number over the whole width", () => {
    expect(scaleOver([0.1, 0.10000000000000002])?.at(0.1)).toBeCloseTo(0.5);
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

describe("timeTicks", () => {
  it("has its marks where a clock has them", () => {
    expect(timeTicks(0, 430, 5)).toEqual([0, 120, 240, 360]);
    expect(timeTicks(0, 8.5, 5)).toEqual([0, 2, 4, 6, 8]);
    expect(timeTicks(0, 20_000, 4)).toEqual([0, 7200, 14_400]);
    expect(timeTicks(10, 9 * 86_400, 5)).toEqual([2, 4, 6, 8].map((days) => days * 86_400));
    expect(timeTicks(0, 400 * 86_400, 3)).toEqual([0, 200 * 86_400, 400 * 86_400]);
    expect(timeTicks(3, 3, 5)).toEqual([]);
  });

  it("counts from what the clock says at the zero of the axis", () => {
    // 16:31:34.1 to 16:31:42.6
    const clock = 16 * 3600 + 31 * 60 + 34.1;
    const seconds = timeTicks(0, 8.5, 3, 1_764_201_600 + clock).map((at) => at + clock - 16 * 3600 - 31 * 60);
    expect(seconds.map((each) => Number(each.toFixed(6)))).toEqual([35, 40]);
    const parts = timeTicks(0, 0.95, 4, clock).map((at) => Number((at + 34.1).toFixed(6)));
    expect(parts).toEqual([34.5, 35]);
  });

  it("never has more marks than there is room for", () => {
    for (const span of [0.001, 0.7, 3, 61, 3599, 40_000, 86_399, 5e6, 1e9])
      for (const most of [1, 3, 4.5, 12])
        expect(timeTicks(0, span, most, 1_764_261_094.1).length).toBeLessThanOrEqual(most + 1);
  });
});

describe("tickTexts", () => {
  it("tells numbers apart that four digits do not", () => {
    expect(tickTexts([0.1, 0.2])).toEqual(["0.1", "0.2"]);
    expect(tickTexts([1.00001, 1.00002, 1.00003])).toEqual(["1.00001", "1.00002", "1.00003"]);
  });
});

describe("heatScale", () => {
  it("is centred on zero only where values lie on both sides of it", () => {
    expect(heatScale([-1, 4])).toEqual({ low: -1, middle: 0, high: 4 });
    expect(heatScale([2, 4, Number.NaN])).toEqual({ low: 2, middle: 3, high: 4 });
    expect(heatScale([Number.NaN])).toBeNull();
    expect(heatScale([1.5e308, 1.7e308])?.middle).toBeCloseTo(1.6e308, -300);
  });
});
