import { describe, expect, it } from "vitest";
import { csvOf, exportWindows } from "./csv";
import { bucketCaption, curveOf, hasBand, inOrder, nearestIndex, notFiniteMarkers } from "./series";
import { metricSeries } from "./testing";

const points = (some: object) => ({ ...metricSeries().points, ...some });

describe("curveOf", () => {
  it("leaves a gap and remembers the place where a bucket has only values that are not finite", () => {
    const curve = curveOf(
      metricSeries({ points: points({ mean: [2, null], min: [2, null], max: [2, null], last: [2, "NaN"] }) }),
    );

    expect(curve.mean).toEqual([2, null]);
    expect(curve.last).toEqual([2, null]);
    expect(curve.notFinite).toEqual([1]);
  });

  it("has a band only where values of a bucket differ", () => {
    expect(hasBand(curveOf(metricSeries()))).toBe(false);
    expect(hasBand(curveOf(metricSeries({ points: points({ max: [3, 1] }) })))).toBe(true);
  });
});

describe("curveOf of odd numbers", () => {
  it("knows nothing of a column that was not asked for, and says where there is no number", () => {
    const kept = { x: [0, 1], mean: [null, 1], count: [2, 2], min: [], max: [], last: [], not_finite: [] };
    const curve = curveOf(metricSeries({ points: kept }));
    expect([curve.min, curve.max, curve.last]).toEqual([
      [null, null],
      [null, null],
      [null, null],
    ]);
    expect(curve.odd).toEqual(["not finite", null]);
    expect(curve.mean).toEqual([null, 1]);
  });

  it("keeps a constant constant: a mean beside its bounds is rounding", () => {
    const curve = curveOf(
      metricSeries({ points: points({ mean: [0.10000000000000002, 1], min: [0.1, 1], max: [0.1, 1] }) }),
    );

    expect(curve.mean[0]).toBe(0.1);
    expect(hasBand(curve)).toBe(false);
  });

  it("says what stands where there is no number to draw", () => {
    const curve = curveOf(metricSeries({ points: points({ mean: [null, 1], last: ["-Infinity", 1] }) }));

    expect(curve.odd).toEqual(["-Infinity", null]);
  });

  it("has a hole where values were lost, and says how many", () => {
    const series = metricSeries({
      points: {
        x: [0, 10, 20],
        min: [1, 1, 1],
        max: [1, 1, 1],
        mean: [1, 1, 1],
        last: [1, 1, 1],
        count: [1, 1, 1],
        not_finite: [0, 0, 0],
      },
    });
    const curve = curveOf(series, [
      { start: 10, end: 20, count: 9, size_bytes: null, what: "metrics" },
      { start: 20, end: null, count: 2, size_bytes: null, what: "metrics" },
    ]);

    expect(curve.x).toEqual([0, 10, 15, 20]);
    for (const column of [curve.min, curve.mean, curve.max, curve.last])
      expect(column).toEqual([1, 1, null, 1]);
    expect(curve.odd[2]).toBe("9 values of all metrics lost");
    expect(curve.lost).toBe(1);
  });

  it("keeps several gaps between the same two points in one hole", () => {
    const gap = { start: 0, end: 1, count: 1, size_bytes: null, what: "metrics" } as const;
    const unknown = { ...gap, count: null, what: "spool" } as const;
    const curve = curveOf(metricSeries(), [gap, { ...gap, count: 2, what: "spool" }, unknown]);

    expect(curve.x).toEqual([0, 0.5, 1]);
    expect(curve.odd[1]).toBe("1 value of all metrics lost, 2 records lost, values lost here");
  });
});

describe("notFiniteMarkers", () => {
  it("marks each bucket that holds a NaN, also where its other values are drawn", () => {
    const curve = curveOf(
      metricSeries({ points: points({ x: [4, 9], not_finite: [0, 2], count: [3, 7], last: [1, 2] }) }),
    );

    expect(notFiniteMarkers(curve)).toEqual([
      { x: 9, kind: "not finite", text: "loss: 2 values not finite" },
    ]);
  });
});

describe("bucketCaption", () => {
  it("tells how much one bucket holds", () => {
    const bucketed = metricSeries({ bucket_width: 25, points: points({ count: [25, 25] }) });

    expect(bucketCaption(curveOf(bucketed), "step")).toBe("1 bucket = 25 steps · min/mean/max");
    expect(bucketCaption(curveOf({ ...bucketed, bucket_width: 0.51234 }), "time")).toBe(
      "1 bucket = 0.512 s · min/mean/max",
    );
  });

  it("tells of several values at one step where no two steps share a bucket", () => {
    const repeated = metricSeries({ points: points({ count: [1, 6] }) });

    expect(bucketCaption(curveOf(repeated), "step")).toBe("up to 6 values per step · min/mean/max");
  });

  it("says that nothing is left out where no two values share a bucket", () => {
    expect(bucketCaption(curveOf(metricSeries()), "step")).toBe("every value shown");
  });
});

describe("inOrder", () => {
  it("puts the program's metrics as people count, then speed in its fixed order", () => {
    const names = ["loss", "layer10", "sys/step_ms", "layer2", "sys/gpu", "sys/steps_per_s"];

    expect(inOrder(names.map((name) => ({ name }))).map((each) => each.name)).toEqual([
      "layer2",
      "layer10",
      "loss",
      "sys/steps_per_s",
      "sys/step_ms",
      "sys/gpu",
    ]);
  });
});

describe("nearestIndex", () => {
  it("finds the closest x", () => {
    expect([-1, 4, 16, 99].map((x) => nearestIndex([0, 10, 20], x))).toEqual([0, 0, 2, 2]);
    expect(nearestIndex([], 1)).toBe(-1);
  });
});

describe("csvOf", () => {
  it("writes every column, empty where nothing was reported, NaN as it is", () => {
    const csv = csvOf([
      [metricSeries({ name: 'a,"b"', points: points({ mean: [2, null], last: [2, "NaN"] }) })],
    ]);

    expect(csv).toBe(
      'name,step,count,min,mean,max,last\r\n"a,""b""",0,1,2,2,2,2\r\n"a,""b""",1,1,1,,1,NaN\r\n',
    );
  });

  it("keeps a name that a spreadsheet would run as text", () => {
    expect(csvOf([[metricSeries({ name: "=1+1" })]])).toContain("'=1+1,0");
  });
});

describe("exportWindows", () => {
  it("covers all steps in windows that the server answers without bucketing", () => {
    expect(exportWindows(0, 4500)).toEqual([
      { from: 0, to: 1999 },
      { from: 2000, to: 3999 },
      { from: 4000, to: 4500 },
    ]);
    expect(exportWindows(7, 7)).toEqual([{ from: 7, to: 7 }]);
  });
});
