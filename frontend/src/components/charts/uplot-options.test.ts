import { describe, expect, it } from "vitest";
import { type ChartColors, chartOptions, yRange } from "./uplot-options";

const colors: ChartColors = {
  text: "#98a1ae",
  line: "#232833",
  strong: "#626c7c",
  curve: "#8cb0ff",
  band: "#8cb0ff2e",
  font: "11px Inter",
};

function options(log = false) {
  return chartOptions({
    width: 400,
    height: 180,
    colors,
    group: "run",
    log,
    formatX: String,
    formatY: String,
    onRange: () => undefined,
    onCursor: () => undefined,
  });
}

describe("chartOptions", () => {
  it("sets the colour of every axis, grid and border: uPlot's own text is black on any theme", () => {
    const { axes = [] } = options();

    expect(axes).toHaveLength(2);
    expect(axes.map((axis) => [axis.stroke, axis.grid?.stroke, axis.border?.stroke])).toEqual([
      [colors.text, colors.line, colors.strong],
      [colors.text, colors.line, colors.strong],
    ]);
  });

  it("fills the band between the largest and the smallest value, and shares the cursor of its group", () => {
    const { bands, cursor } = options();

    expect(bands).toEqual([{ series: [2, 3], fill: colors.band }]);
    expect(cursor?.sync?.key).toBe("run");
  });

  it("draws y by powers of ten on request", () => {
    expect(options(true).scales?.y).toEqual({ distr: 3, log: 10 });
  });
});

describe("yRange", () => {
  it("keeps zero as the floor of values near it, and leaves room around others", () => {
    expect(yRange(null, 0.2, 3)).toEqual([0, 3.28]);
    const [low, high] = yRange(null, 0.9, 0.95);
    expect(low).toBeCloseTo(0.895);
    expect(high).toBeCloseTo(0.955);
    expect(yRange(null, -3, -0.1)[1]).toBe(0);
  });

  it("stays close to a value that never changes", () => {
    expect(yRange(null, 10, 10)).toEqual([9, 11]);
    expect(yRange(null, 0, 0)).toEqual([-1, 1]);
  });

  it("has a span where there is nothing to draw", () => {
    expect(yRange(null, null, null)).toEqual([0, 1]);
  });
});
