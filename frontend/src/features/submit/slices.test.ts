import { describe, expect, it } from "vitest";
import { meshOf } from "./slices";

describe("the mesh of a slice", () => {
  // As `KnownSlice.parse` of Python names them.
  it.each([
    ["v4:2x2x4", [2, 2, 4, 1]],
    ["V3:2x2", [2, 2, 1, 2]],
    ["v4-8", [2, 2, 1, 1]],
    ["v4-32", [2, 2, 4, 1]],
    ["v4-128", [4, 4, 4, 1]],
    ["v5litepod-16", [4, 4, 1, 1]],
    ["v5e-8", [2, 4, 1, 1]],
    ["v3-32", [4, 4, 1, 2]],
    ["v2-2", [1, 1, 1, 2]],
    ["v5p-256", [4, 4, 8, 1]],
    ["tpu7x-16", [2, 2, 2, 2]],
    ["v4-7", null],
    ["v9-8", null],
    ["v4", null],
    ["", null],
  ])("%s", (topology, mesh) => {
    expect(meshOf(topology)).toEqual(mesh);
  });
});
