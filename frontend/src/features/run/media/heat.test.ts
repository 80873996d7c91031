import { describe, expect, it } from "vitest";
import { heatMapOf, levelOf } from "./heat";

const histogram = (counts: number[], min: number | null, max: number | null) => ({
  kind: "histogram" as const,
  counts,
  min,
  max,
  count: counts.reduce((sum, count) => sum + count, 0),
  nan_count: 0,
  inf_count: 0,
});

describe("heat map", () => {
  it("puts histograms of different ranges on one axis, and loses nothing of them", () => {
    const map = heatMapOf([histogram([4, 4], 0, 2), histogram([3], 8, 8), histogram([1, 3], 0, 8)], 4);
    expect(map).toMatchObject({ low: 0, high: 8 });
    expect(map?.columns[0]).toEqual([1, 0, 0, 0]);
    expect(map?.columns[1]).toEqual([0, 0, 0, 1]);
    expect(map?.columns[2]).toEqual([0.125, 0.125, 0.375, 0.375]);
  });

  it("holds the widest range, and one value alone", () => {
    const wide = heatMapOf([histogram([1, 1], -1.7e308, 1.7e308)], 2);
    expect(wide?.columns[0]).toEqual([0.5, 0.5]);
    expect(heatMapOf([histogram([5], 3, 3)], 4)?.columns[0]).toEqual([0, 0, 1, 0]);
    expect(heatMapOf([histogram([], null, null)], 4)).toBeNull();
  });

  it("shows the thinnest tail", () => {
    expect([0, 1e-9, 0.5, 1].map((share) => levelOf(share, 1))).toEqual([0, 1, 4, 5]);
  });
});
