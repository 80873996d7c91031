import { describe, expect, it } from "vitest";
import type { RunSummary } from "@/api/schema";
import { becauseOf, flawOf } from "./run-facts";

type Reason = NonNullable<RunSummary["reason"]>;

function reason(code: Reason["code"]): Reason {
  return { code, category: "policy", retryable: false, sentence: `Sentence of ${code}.`, message: "" };
}

describe("what stands beside a run in a list", () => {
  it("is what a waiting run waits for, whatever ended its last attempt", () => {
    const wait = { rule: "devices_busy", phrase: "devices are busy" } as const;
    expect(becauseOf({ state: "QUEUED", wait, reason: reason("KILLED") })).toBe("devices are busy");
  });

  it("is what the program raised, by its last line", () => {
    const raised = {
      ...reason("PROGRAM_ERROR"),
      message: "Traceback\n  File x\nValueError: lr is negative\n",
    };
    expect(becauseOf({ state: "FAILED", wait: null, reason: raised })).toBe("ValueError: lr is negative");
  });

  it.each([
    ["FAILED", "HANG", "Sentence of HANG."],
    ["CANCELLED", "RUN_LIMIT", "Sentence of RUN_LIMIT."],
    ["CANCELLED", "CANCELLED", null],
    ["SUCCEEDED", "COMPLETED", null],
    ["RUNNING", "KILLED", null],
  ] as const)("of a %s run with reason %s is %s", (state, code, shown) => {
    expect(becauseOf({ state, wait: null, reason: reason(code) })).toBe(shown);
  });

  it("is that its steps get no further, before what came out of them", () => {
    const flawed = { not_finite: { loss: "NaN" } } as const;
    expect(flawOf({ ...flawed, stalled_at: "2026-11-25T09:10:00Z" })).toBe("stands still");
    expect(flawOf({ ...flawed, stalled_at: null })).toBe("NaN");
  });
});
