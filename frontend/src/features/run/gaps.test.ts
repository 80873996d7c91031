import { describe, expect, it } from "vitest";
import type { Gap } from "@/api/schema";
import { gapSentence, lostOf } from "./gaps";

const gap = (what: Gap["what"], count: number | null, size_bytes: number | null = null) => ({
  what,
  count,
  size_bytes,
});

describe("gapSentence", () => {
  it("adds up what is lost of the view's own kind", () => {
    const lost = lostOf([gap("metrics", 1200), gap("log", null, 3_000), gap("metrics", 34)]);

    expect(gapSentence(lost, "metrics")).toBe("1,234 logged values lost.");
    expect(gapSentence(lost, "log")).toBe("2.9 KiB of output lost.");
    expect(gapSentence(lost, "reduction")).toBeNull();
  });

  it("tells every view of records that were lost whatever they were, with their size", () => {
    const lost = lostOf([gap("spool", 1, 2048), gap("reduction", 1)]);

    expect(gapSentence(lost, "log")).toBe("1 record of any kind (2.0 KiB) lost.");
    expect(gapSentence(lost, "reduction")).toBe("1 reduction lost; 1 record of any kind (2.0 KiB) lost.");
  });

  it("says so where nobody knows how much", () => {
    const lost = lostOf([gap("spool", null), gap("log", null)]);

    expect(gapSentence(lost, "log")).toBe(
      "Output of unknown size lost; An unknown number of records of any kind lost.",
    );
  });
});
