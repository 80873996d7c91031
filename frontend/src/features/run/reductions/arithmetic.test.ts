import { describe, expect, it } from "vitest";
import type { ArraySummary } from "@/api/schema";
import { array, reduction, scalar } from "../testing";
import { combine, countContributed, meanOfMeans, ownValue, recompute, type Tensor } from "./arithmetic";

const vector = (...values: number[]): Tensor => ({ shape: [values.length], values });
/** What JSON carries for NaN: the wire holds a string where the schema says number. */
const wire = (...values: (number | string)[]): ArraySummary => array(values as number[]);

describe("combine", () => {
  it("adds element by element across replicas where the axis is None", () => {
    expect(combine([vector(0, 1, 2, 3), vector(4, 5, 6, 7)], "sum", null)).toEqual(vector(4, 6, 8, 10));
  });

  it("adds over the batch as well where the axis is 0", () => {
    expect(combine([vector(0, 1, 2, 3), vector(4, 5, 6, 7)], "sum", 0)).toEqual({ shape: [], values: [28] });
  });

  it("divides the mean by the number of replicas where the axis is None", () => {
    expect(combine([vector(0, 2), vector(4, 6)], "mean", null)).toEqual(vector(2, 4));
  });

  it("divides a ragged mean by the number of elements, where the mean of means is another number", () => {
    const ragged = [vector(0, 1, 2, 3), vector(4, 5)];

    expect(combine(ragged, "mean", 0).values).toEqual([2.5]);
    expect(meanOfMeans(ragged, 0).values).toEqual([3]);
  });

  it("weighs an empty replica with nothing, where the mean of means is not a number", () => {
    const uneven = [vector(1, 3), vector(5), vector()];

    expect(combine(uneven, "mean", 0).values).toEqual([3]);
    expect(meanOfMeans(uneven, 0).values).toEqual([Number.NaN]);
  });

  it.each([
    [1, [2], [3 + 12, 12 + 30]],
    [-1, [2], [3 + 12, 12 + 30]],
    [[0, 1], [], [57]],
  ])("reduces a matrix over axis %j", (axis, shape, values) => {
    const matrices = [
      { shape: [2, 3], values: [0, 1, 2, 3, 4, 5] },
      { shape: [2, 3], values: [3, 4, 5, 9, 10, 11] },
    ];

    expect(combine(matrices, "sum", axis)).toEqual({ shape, values });
  });
});

describe("contributed", () => {
  it("counts the elements along the reduced axes", () => {
    expect(countContributed([4, 3], 0)).toBe(4);
    expect(countContributed([4, 3], [0, -1])).toBe(12);
    expect(countContributed([4, 3], null)).toBe(1);
    expect(countContributed([0, 3], 0)).toBe(0);
  });
});

describe("ownValue", () => {
  it("is the replica's own mean for MEAN and its own sum for SUM", () => {
    expect(ownValue(vector(4, 5), "mean", 0).values).toEqual([4.5]);
    expect(ownValue(vector(4, 5), "sum", 0).values).toEqual([9]);
    expect(ownValue(vector(4, 5), "mean", null).values).toEqual([4, 5]);
  });
});

describe("recompute", () => {
  it("reproduces a float32 result within its rounding", () => {
    const inputs = [scalar(Math.fround(0.1)), scalar(Math.fround(0.2)), scalar(Math.fround(0.7))];
    const output = scalar(Math.fround((0.1 + 0.2 + 0.7) / 3));

    const answer = recompute(reduction({ op: "mean", inputs, output, denominator: 3 }));

    expect(answer.kind === "worked_out" && answer.reproduces).toBe(true);
  });

  it("says that a wrong result is not reproduced, and by how much", () => {
    const inputs = [array([0, 1, 2, 3]), array([4, 5])];

    const answer = recompute(reduction({ op: "mean", axis: 0, inputs, output: scalar(3), denominator: 6 }));

    expect(answer).toMatchObject({ kind: "worked_out", reproduces: false, largestDifference: 0.5 });
  });

  it("reproduces NaN and infinities as they are sent", () => {
    const inputs = [wire("NaN", 1, "Infinity"), wire(2, 2, 2)];

    const answer = recompute(reduction({ inputs, output: wire("NaN", 3, "Infinity") }));

    expect(answer.kind === "worked_out" && answer.reproduces).toBe(true);
  });

  it("names the shapes that do not fit where the axis is None", () => {
    const answer = recompute(reduction({ inputs: [array([0, 1, 2, 3]), array([4, 5])], output: scalar(0) }));

    expect(answer).toMatchObject({ kind: "shapes_differ", shapes: ["(4)", "(2)"] });
  });

  it("says that large arrays were kept as statistics only", () => {
    const large = array(null, { shape: [64, 256] });

    const answer = recompute(reduction({ inputs: [large, large], output: large }));

    expect(answer.kind === "not_kept" && answer.sentence).toContain("16,384 elements");
  });
});
