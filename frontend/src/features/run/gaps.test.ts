import { describe, expect, it } from "vitest";
import { droppedOf, gapSentence } from "./gaps";

const gap = (what: string, count: number) => ({ kind: "gap", body: { what, count } });

describe("gapSentence", () => {
  it("adds up what was dropped of the view's own kind", () => {
    const dropped = droppedOf([gap("metrics", 1200), gap("log", 3), gap("metrics", 34)]);

    expect(gapSentence(dropped, "metrics")).toBe("1,234 logged values were dropped under load.");
    expect(gapSentence(dropped, "log")).toBe("3 pieces of output were dropped under load.");
    expect(gapSentence(dropped, "reduction")).toBeNull();
  });

  it("tells every view of records that were lost with the worker", () => {
    const dropped = droppedOf([gap("spool", 1), gap("reduction", 1)]);

    expect(gapSentence(dropped, "log")).toBe("1 record of any kind was lost with the worker.");
    expect(gapSentence(dropped, "reduction")).toBe(
      "1 reduction was dropped under load; 1 record of any kind was lost with the worker.",
    );
  });

  it("ignores other events", () => {
    expect(droppedOf([{ kind: "progress", body: { what: "log", count: 1 } }]).size).toBe(0);
  });
});
