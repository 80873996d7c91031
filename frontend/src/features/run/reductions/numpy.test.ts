import { describe, expect, it } from "vitest";
import { array, reduction, scalar } from "../testing";
import { numpySnippet } from "./numpy";

describe("numpySnippet", () => {
  it("divides a ragged mean by the count of elements", () => {
    const snippet = numpySnippet(
      reduction({ op: "mean", axis: 0, inputs: [array([0, 1, 2, 3]), array([4, 5])], denominator: 6 }),
    );

    expect(snippet).toContain("np.array([0, 1, 2, 3], dtype=np.float32),");
    expect(snippet).toContain("count = sum(values.shape[0] for values in replicas)");
    expect(snippet).toContain("result = total / count");
  });

  it("adds across replicas where the axis is None, and writes values that are not finite", () => {
    const snippet = numpySnippet(
      reduction({ inputs: [scalar(Number.NaN), scalar(Number.NEGATIVE_INFINITY)] }),
    );

    expect(snippet).toContain("np.array(np.nan, dtype=np.float32)");
    expect(snippet).toContain("np.array(-np.inf, dtype=np.float32)");
    expect(snippet).toContain("result = sum(values.astype(np.float64) for values in replicas)\n");
  });

  it("keeps shapes, tuple axes and types that NumPy lacks", () => {
    const matrix = array([1, 2, 3, 4], { shape: [2, 2], dtype: "bfloat16" });

    const snippet = numpySnippet(reduction({ op: "mean", axis: [0, 1], inputs: [matrix, matrix] }));

    expect(snippet).toContain("dtype=np.float32).reshape(2, 2)");
    expect(snippet).toContain(".sum(axis=(0, 1))");
    expect(snippet).toContain("values.shape[0] * values.shape[1]");
  });

  it("keeps a line break in a name inside the comment", () => {
    const [first, second] = numpySnippet(
      reduction({ name: "x\nimport os\u2028", inputs: [scalar(1)] }),
    ).split("\n");

    expect(first).toContain("x import os");
    expect(second).toBe("import numpy as np");
  });

  it("says so where values were not kept", () => {
    expect(numpySnippet(reduction({ inputs: [array(null, { shape: [5000] })] }))).toContain("not kept");
  });
});
