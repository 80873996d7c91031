import type uPlot from "uplot";
import { describe, expect, it, vi } from "vitest";
import { alone, type ChartColors, chartOptions, drawnAs, logRange, roomOfEnd, yRange } from "./uplot-options";

const colors: ChartColors = {
  text: "#98a1ae",
  line: "#232833",
  strong: "#626c7c",
  accent: "#8cb0ff",
  warn: "#f5b83d",
  font: "11px Inter",
};

function options(
  log = false,
  limits: Limits = { low: null, high: null },
  onRange: OnRange = () => undefined,
) {
  return chartOptions({
    width: 400,
    height: 180,
    colors,
    group: "run",
    log,
    layers: (["max", "min", "main"] as const).map((part) => ({
      part,
      color: colors.accent,
      dash: [],
      wide: false,
    })),
    limits: () => limits,
    onDrawn: () => undefined,
    formatX: String,
    domain: () => [2, 40],
    numberAt: (drawn) => drawn,
    onRange,
    isSeen: () => true,
    onCursor: () => undefined,
  });
}

type Limits = { low: number | null; high: number | null };
type OnRange = (from: number, to: number) => void;

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

    expect(bands).toEqual([{ series: [1, 2], fill: "#8cb0ff2e" }]);
    expect(cursor?.sync?.key).toBe("run");
  });

  it("has the same ends of x as the charts beside it, whatever its own values span", () => {
    const range = options().scales?.x?.range as () => [number, number];

    expect(range()).toEqual([2, 40]);
  });
});

describe("a range that is drawn over a group of charts", () => {
  const released = (event: Partial<MouseEvent> | null, width: number) => {
    const onRange = vi.fn<OnRange>();
    const setSelect = vi.fn();
    const [report] = (options(false, undefined, onRange).hooks?.setSelect ?? []) as ((
      chart: uPlot,
    ) => void)[];
    const chart = {
      select: { left: 10, width },
      cursor: { event },
      posToVal: (at: number) => at * 2,
      setSelect,
    };
    report?.(chart as unknown as uPlot);
    return { onRange, setSelect };
  };

  it("is told by the chart under the pointer alone, and taken away in all of them", () => {
    const own = released({ type: "mouseup" }, 30);
    const beside = released(null, 30);

    expect(own.onRange.mock.calls).toEqual([[20, 80]]);
    expect(beside.onRange).not.toHaveBeenCalled();
    for (const { setSelect } of [own, beside])
      expect(setSelect.mock.calls).toEqual([[{ left: 0, top: 0, width: 0, height: 0 }, false]]);
  });

  it("is a click where it has a few pixels, of which nothing stays", () => {
    const { onRange, setSelect } = released({ type: "mouseup" }, 3);

    expect(onRange).not.toHaveBeenCalled();
    expect(setSelect).toHaveBeenCalled();
  });
});

describe("limits of y", () => {
  const ends = (limits: Limits) => {
    const range = options(false, limits).scales?.y?.range as (...all: unknown[]) => [number, number];
    return range(null, 1, 3);
  };

  it("hold where they are chosen, and leave the other end to the values", () => {
    expect(ends({ low: -1, high: 2 })).toEqual([-1, 2]);
    expect(ends({ low: null, high: 2 })).toEqual([0.8, 2]);
  });

  it("have a span even where all values lie beyond the one that is chosen", () => {
    expect(ends({ low: 9, high: null })).toEqual([9, 10]);
    expect(ends({ low: null, high: -9 })).toEqual([-10, -9]);
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

  it.each([
    [0.1, 0.10000000000000002],
    [0.1, 0.10000001],
    [-3.0000002, -3],
    [16777216, 16777217],
    [0, 5e-324],
  ])("does not fill an axis with the rounding between %d and %d", (low, high) => {
    const [floor, ceiling] = yRange(null, low, high);

    expect((high - low) / (ceiling - floor)).toBeLessThan(1e-4);
    expect(floor).toBeLessThan(low);
    expect(ceiling).toBeGreaterThan(high);
  });
});

describe("logRange", () => {
  it("covers whole powers of ten", () => {
    expect(logRange(null, Math.log10(0.02), Math.log10(3))).toEqual([-2, 1]);
    expect(logRange(null, 2, 2)).toEqual([2, 3]);
    expect(logRange(null, null, null)).toEqual([0, 1]);
  });
});

describe("drawnAs", () => {
  it.each([[[1.7e308, -1.7e308]], [[5e-324, 1e-320]], [[3e12, 1e10]], [[1, 2, null]], [[0, null]]])(
    "keeps %j what it is, and within what can be drawn",
    (values) => {
      const { to, from } = drawnAs([values], false);

      for (const value of values) {
        if (value === null) continue;
        const drawn = to(value) ?? Number.NaN;
        expect(from(drawn)).toBe(value);
        expect(Math.abs(drawn)).toBeLessThan(1e9);
      }
    },
  );

  it("has no place for zero and below on a logarithmic axis", () => {
    const { to, from } = drawnAs([[-1, 0, 1000]], true);

    expect([-1, 0, 1000].map(to)).toEqual([null, null, 3]);
    expect(from(3)).toBe(1000);
  });
});

describe("alone", () => {
  it("finds the points between two holes, which no line reaches", () => {
    expect(alone([1, null, 2, null, 3, 4])).toEqual([0, 2]);
    expect(alone([null, 1])).toEqual([1]);
    expect(alone([1, undefined, 2, undefined, null, undefined, 3, null])).toEqual([6]);
    expect(alone([])).toEqual([]);
  });
});

describe("roomOfEnd", () => {
  it("holds half of the number at the right end of the axis", () => {
    expect(roomOfEnd("40")).toBe(12);
    expect(roomOfEnd("19,999")).toBeGreaterThan((6 * 6.4) / 2);
    expect(roomOfEnd("1,000,000,000")).toBeGreaterThan((13 * 6.4) / 2);
  });

  it("is the room beside a plot", () => {
    const [, right] = options().padding ?? [];
    expect((right as () => number)()).toBe(roomOfEnd("40"));
  });
});

describe("charts of a group", () => {
  const follows = (type: string, width: number) =>
    options().cursor?.sync?.filters?.sub?.(type, { select: { width } } as uPlot, 0, 0, 0, 0, 0);

  it("follow the pointer, but not while a range is drawn over one of them", () => {
    expect(follows("mousemove", 0)).toBe(true);
    expect(follows("mousemove", 12)).toBe(false);
  });

  it("learn when it is pressed and released", () => {
    expect(["mousedown", "mouseup", "mouseleave"].map((type) => follows(type, 12))).toEqual([
      true,
      true,
      true,
    ]);
  });
});
