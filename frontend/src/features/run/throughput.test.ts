import { describe, expect, it } from "vitest";
import { formatFlops, formatStepTime, shareText, unmeasuredText } from "./throughput";

describe("what share of the chip is used", () => {
  it("is told as a percentage, or why there is none", () => {
    expect(shareText(41.23, null)).toBe("41.2 %");
    expect(shareText(0, null)).toBe("0 %");
    expect(shareText(null, "chip")).toBe("not known for this chip");
    expect(shareText(null, "a reason of a later server")).toBe("not known");
  });
});

describe("time in collectives", () => {
  it("is said to be not measured, and why, where no trace has it", () => {
    expect(unmeasuredText(null)).toBe("not measured: no step is traced");
    expect(unmeasuredText("platform")).toBe("not measured: the platform tells no operations of devices");
    expect(unmeasuredText("a reason of a later server")).toBe("not measured");
  });
});

describe("figures of a step", () => {
  it("have three digits", () => {
    expect([0, 0.04211, 12.345, 1234.5].map(formatStepTime)).toEqual([
      "none",
      "0.0421 ms",
      "12.3 ms",
      "1,235 ms",
    ]);
    expect([0, 950, 1.234e12, 5e20].map(formatFlops)).toEqual([
      "0 flop/s",
      "950 flop/s",
      "1.23 Tflop/s",
      "500 Eflop/s",
    ]);
  });
});
