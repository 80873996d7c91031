import { describe, expect, it } from "vitest";
import { executorsInWords } from "./executor";

describe("executorsInWords", () => {
  it("says each executor that ran in words, and keeps its name", () => {
    expect(executorsInWords("spmd, mpmd")).toEqual(["one program (spmd)", "per device (mpmd)"]);
  });

  it("leaves out that the choice was left open once it was made", () => {
    expect(executorsInWords("auto, spmd")).toEqual(["one program (spmd)"]);
    expect(executorsInWords("auto")).toEqual(["chosen at the first step"]);
  });

  it("shows a name that it does not know as it is, and says nothing where nothing was reported", () => {
    expect(executorsInWords("pipelined")).toEqual(["pipelined"]);
    expect(executorsInWords(null)).toEqual([]);
    expect(executorsInWords("")).toEqual([]);
  });
});
