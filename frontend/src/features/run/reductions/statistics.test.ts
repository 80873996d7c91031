import { describe, expect, it } from "vitest";
import { histogram, lanesOf, mostExtreme, spreadOf, stripOf } from "./statistics";

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

describe("spreadOf", () => {
  it("gives median and median absolute deviation of the finite values", () => {
    expect(spreadOf([1, 2, 3, 4, 100])).toEqual({ median: 3, mad: 1 });
    expect(spreadOf([1, nan, 3, inf])).toEqual({ median: 2, mad: 1 });
    expect(spreadOf([nan])).toBeNull();
  });
});

describe("numbers at the ends of what there is", () => {
  const large = [1.7e308, 1.7e308, -1.7e308, 1.7e308];

  it("have a median, a mean and bins", () => {
    expect(spreadOf([1.7e308, 1.6e308])?.median).toBeCloseTo(1.65e308, -300);
    expect(stripOf([0.1, 0.1, 0.1], 1)[0]?.mean).toBe(0.1);
    expect(stripOf([1.7e308, 1.7e308], 1)[0]?.mean).toBe(1.7e308);
    const bins = histogram(large, 4);
    expect(bins.map((bin) => bin.count)).toEqual([1, 0, 0, 3]);
    expect(bins.every((bin) => Number.isFinite(bin.from) && Number.isFinite(bin.to))).toBe(true);
  });
});

describe("lanesOf", () => {
  it("drops no value", () => {
    expect(lanesOf([1, nan, inf, -inf, 2])).toEqual({
      finite: [
        { replica: 0, value: 1 },
        { replica: 4, value: 2 },
      ],
      nan: [1],
      positive: [2],
      negative: [3],
    });
  });
});

describe("mostExtreme", () => {
  it("puts values that are not finite first, then the farthest from the median", () => {
    expect(mostExtreme([10, 11, nan, 50, 9], 3)).toEqual([2, 3, 0].slice(0, 2).concat(4));
  });
});

describe("histogram", () => {
  it("counts every finite value once, the largest in the last bin", () => {
    const bins = histogram([0, 1, 2, 3, 4, nan], 4);

    expect(bins.map((bin) => bin.count)).toEqual([1, 1, 1, 2]);
    expect(histogram([7, 7], 10)).toEqual([{ from: 7, to: 7, count: 2 }]);
    expect(histogram([nan], 10)).toEqual([]);
  });
});

describe("stripOf", () => {
  it("keeps a spike in its bucket and counts what is not finite", () => {
    const values: number[] = Array.from({ length: 640 }, (_, i) => (i === 321 ? 40 : 1));
    values[0] = nan;

    const strip = stripOf(values, 64);

    expect(strip).toHaveLength(64);
    expect(strip[32]).toMatchObject({ min: 1, max: 40 });
    expect(strip[0]?.notFinite).toBe(1);
    expect(stripOf([3, 4], 64)).toHaveLength(2);
  });
});
