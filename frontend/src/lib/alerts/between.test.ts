import { expect, test } from "vitest";
import { alertsBetween, type SeenRun } from "./between";

const SINCE = Date.parse("2026-11-25T09:00:00Z");
const RUNNING: SeenRun = {
  id: "run_1",
  job: "digits",
  state: "RUNNING",
  created_at: "2026-11-25T08:00:00Z",
};

function told(before: SeenRun | null, after: SeenRun): string[] {
  const seen = new Map(before ? [[before.id, before]] : []);
  return alertsBetween(seen, [after], SINCE).map(({ title }) => title);
}

test.each([
  [{ state: "SUCCEEDED" }, "digits succeeded"],
  [{ state: "FAILED", reason: { message: "ValueError" } }, "digits failed"],
  [{ state: "CANCELLED" }, "digits was cancelled"],
  [{ first_non_finite: { name: "loss", step: 3 } }, "digits has its first NaN or infinity"],
  [{ stalled_at: "2026-11-25T09:10:00Z" }, "digits stands still"],
])("%j is told once", (change, title) => {
  const after = { ...RUNNING, ...change };
  expect(told(RUNNING, after)).toEqual([title]);
  expect(told(after, after)).toEqual([]);
});

test("a run that stands still again is told again", () => {
  const stalled = { ...RUNNING, stalled_at: "2026-11-25T09:10:00Z" };
  expect(told(stalled, { ...RUNNING, stalled_at: null })).toEqual([]);
  expect(told(stalled, { ...RUNNING, stalled_at: "2026-11-25T09:40:00Z" })).toHaveLength(1);
});

test("a run that began and ended between two looks is told, one of long ago is not", () => {
  const ended = { ...RUNNING, state: "FAILED" };
  expect(told(null, { ...ended, created_at: "2026-11-25T09:00:01Z" })).toEqual(["digits failed"]);
  expect(told(null, ended)).toEqual([]);
});
