import { describe, expect, it } from "vitest";
import { belowZero, drawingOf, type Line, pointAt } from "./drawing";
import { csvOfChart, svgOfChart } from "./export";
import { lineStyle } from "./line-style";
import { chooseLive, inSight } from "./live-slots";
import { rowsAt } from "./readout";
import { smoothed } from "./smoothing";

function line(label: string, x: number[], values: (number | null)[], style: number | null = null): Line {
  const count = x.map(() => 1);
  const odd = values.map((value) => (value === null ? "NaN" : null));
  return {
    id: label,
    label,
    style,
    columns: { x, mean: values, min: values, max: values, last: values, odd, count },
  };
}

const picture = {
  title: "loss <b>",
  xName: "step",
  caption: "every value shown",
  log: false,
  smooth: 0,
  domain: [0, 10] as const,
  limits: {},
  formatX: String,
};

describe("smoothed", () => {
  it("begins at the first value, follows a constant exactly, and leaves holes", () => {
    expect(smoothed([5, 5, null, 5], 0.9).map((value) => value && Number(value.toFixed(9)))).toEqual([
      5,
      5,
      null,
      5,
    ]);
    const [first, second] = smoothed([1, 3], 0.5);

    expect(first).toBe(1);
    // (0.25 * 1 + 0.5 * 3) / 0.75, the debiased average of both.
    expect(second).toBeCloseTo(7 / 3, 12);
  });

  it("draws no noise of rounding where a curve is flat", () => {
    for (const [value, weight] of [
      [0.3, 0.1],
      [0.1, 0.99],
      [1e15 + 0.3, 0.9],
    ] as const)
      expect(new Set(smoothed(Array<number>(50).fill(value), weight))).toEqual(new Set([value]));
  });

  it("stays finite where values are as large as numbers can be", () => {
    for (const value of smoothed([1.7e308, 1.7e308, -1.7e308], 0.9))
      expect(Number.isFinite(value)).toBe(true);
  });
});

describe("belowZero", () => {
  it("counts values where each has a place of its own, else the buckets that hold some", () => {
    const single = line("a", [0, 1, 2, 3], [1, 0, -2, null]);
    const { columns } = single;
    const merged = { ...single, columns: { ...columns, min: [0.1, -1, 0.2, null], count: [5, 5, 5, 5] } };

    expect(belowZero([line("a", [0], [1])])).toBe("");
    expect(belowZero([single])).toBe(" · 2 at or below zero, which a log scale cannot show");
    expect(belowZero([merged])).toBe(
      " · 1 bucket with values at or below zero, which a log scale cannot show",
    );
  });
});

describe("drawingOf", () => {
  it("puts lines over one x: a hole stays a hole, and what another line has is no hole", () => {
    const { x, layers, own } = drawingOf([line("a", [0, 2], [1, null]), line("b", [1, 2], [5, 6])], false, 0);

    expect(x).toEqual([0, 1, 2]);
    const mains = layers.filter(({ part }) => part === "main").map(({ values }) => values);
    expect(mains).toEqual([
      [1, undefined, null],
      [undefined, 5, 6],
    ]);
    expect([0, 1, 2].map((at) => pointAt(own[0], at))).toEqual([0, 0, 1]);
    expect(pointAt(own[1], 0)).toBe(-1);
  });

  it("keeps the raw line and its band behind a smoothed one, and no band where lines are many", () => {
    const parts = (lines: Line[], smooth: number) =>
      drawingOf(lines, false, smooth).layers.map(({ part }) => part);

    expect(parts([line("a", [0], [1])], 0.5)).toEqual(["max", "min", "raw", "main"]);
    const many = Array.from({ length: 9 }, (_, at) => line(`${at}`, [0], [1], at));
    expect(new Set(parts(many, 0))).toEqual(new Set(["main"]));
  });
});

describe("lineStyle", () => {
  it("has another dash for each eight of one colour", () => {
    const looks = Array.from({ length: 32 }, (_, nth) => JSON.stringify(lineStyle(nth)));

    expect(new Set(looks).size).toBe(32);
  });
});

describe("inSight", () => {
  it.each([
    [1440, 900, 6],
    [1920, 1080, 9],
    [1024, 768, 4],
    [390, 844, 2],
    [390, 300, 1],
    [3840, 2160, 12],
  ])("is about what a window of %d by %d has room for", (width, height, charts) => {
    expect(inSight(width, height)).toBe(charts);
  });
});

describe("chooseLive", () => {
  it("draws what is in the window, then what is nearest, never more than is allowed", () => {
    const places = new Map(
      Array.from({ length: 60 }, (_, at) => [at, { top: at * 100 - 2000, bottom: at * 100 - 1900 }]),
    );
    const live = chooseLive(places, 900, 12);

    expect(live.size).toBe(12);
    for (let at = 20; at < 29; at += 1) expect(live.has(at)).toBe(true);
    expect(chooseLive(new Map([[0, { top: 5000, bottom: 5100 }]]), 900, 12).size).toBe(0);
  });
});

describe("rowsAt", () => {
  it("names the lines nearest to the pointer, highest first", () => {
    const lines = Array.from({ length: 20 }, (_, at) => line(`r${at}`, [0], [at], at));
    const rows = rowsAt(drawingOf(lines, false, 0), lines, 0, 10);

    expect(rows).toHaveLength(8);
    expect(rows.map(({ value }) => value)).toContain(10);
    expect(rows.map(({ value }) => value)).toEqual(rows.map(({ value }) => value).toSorted((a, b) => b - a));
  });
});

describe("exports of what is drawn", () => {
  it("write a row for each point within the domain, and no cell that a spreadsheet runs", () => {
    const csv = csvOfChart({ ...picture, lines: [line("=1+1", [0, 5, 11], [1, null, 3])], smooth: 0.5 });

    expect(csv.split("\r\n")).toEqual([
      "line,step,count,min,mean,max,last,smoothed",
      "'=1+1,0,1,1,1,1,1,1",
      "'=1+1,5,1,,,,NaN,",
      "",
    ]);
  });

  it("draw every line with its name, and markup in a name stays text", () => {
    const colors = { bg: "#fff", text: "#000", muted: "#555", line: "#ddd", of: () => "#123456" };
    const lines = [line("a & <i>", [0, 10], [1, 2], 0), line("b", [0, 10], [2, null], 9)];
    const svg = svgOfChart({ ...picture, lines }, 600, 300, colors);

    expect(svg).toContain("loss &lt;b&gt;");
    expect(svg).toContain("a &amp; &lt;i&gt;");
    expect(svg.match(/stroke="#123456"/g)?.length).toBeGreaterThanOrEqual(4);
    expect(svg).toContain('stroke-dasharray="7 3"');
    expect(svg).not.toMatch(/NaN|undefined/);
  });
});
