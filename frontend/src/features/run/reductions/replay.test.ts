import { describe, expect, it } from "vitest";
import { array, reduction, scalar } from "../testing";
import { replayOf, wrongAnswers } from "./replay";

const f32 = (...values: number[]) => array(values.map(Math.fround), { dtype: "float32" });
const ragged = reduction({
  op: "mean",
  axis: 0,
  inputs: [f32(1, 2), f32(6)],
  counts: [2, 1],
  denominator: 3,
  output: scalar(3, { dtype: "float32" }),
});

describe("replayOf", () => {
  it("adds in the order of the replicas, in their type", () => {
    const values = [1e8, 1, 1, -1e8].map((value) => scalar(value, { dtype: "float32" }));
    const output = scalar(0, { dtype: "float32" });

    expect(replayOf(reduction({ inputs: values, output }))?.outcome).toBe("bit for bit");
    expect(replayOf(ragged)?.outcome).toBe("bit for bit");
  });

  it("measures another order in units in the last place, beside the bound of any order", () => {
    const inputs = [1e8, 1, 1, 1].map((value) => scalar(value, { dtype: "float32" }));
    const output = scalar(100000008, { dtype: "float32" });

    const found = replayOf(reduction({ inputs, output }));

    expect(found).toMatchObject({ outcome: "within the bound", ulps: 0.625 });
    expect(found?.bound).toBeCloseTo(4.47, 2);
  });

  it("tells a result that does not follow", () => {
    const inputs = [scalar(1, { dtype: "float32" }), scalar(1, { dtype: "float32" })];

    expect(replayOf(reduction({ inputs, output: scalar(3, { dtype: "float32" }) }))?.outcome).toBe("differs");
  });
});

describe("wrongAnswers", () => {
  it("are those of usual mistakes that give another number, as the SDK has them", () => {
    expect(wrongAnswers(ragged)).toEqual([
      { what: "SUM for MEAN: not divided by 3", value: 9 },
      { what: "mean of the replicas' own means", value: 3.75 },
      { what: "divided by the 2 replicas, not the elements", value: 4.5 },
      { what: "replica 0 alone", value: 1.5 },
    ]);
  });

  it("are told of scalars only", () => {
    expect(wrongAnswers(reduction({ inputs: [f32(1, 2)], output: f32(1, 2) }))).toEqual([]);
  });
});
