import { expect, it } from "vitest";
import { stateSentence } from "./sentence";

const running = { state: "RUNNING", reason: null, cancel_requested: false } as const;

it("says of a run whose steps get no further that they do not, unless it was asked to stop", () => {
  const stalled = { ...running, stalled_at: "2026-11-25T09:10:00Z" };

  expect(stateSentence(running)).toBe("The program runs on all its replicas.");
  expect(stateSentence(stalled)).toBe("The program runs, but its steps get no further.");
  expect(stateSentence({ ...stalled, cancel_requested: true, cancelled_by: { name: "ada" } })).toBe(
    "Was asked to stop by ada; the program has its grace period.",
  );
});
