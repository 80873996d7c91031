import { expect, it } from "vitest";
import { formatOf, ticksOf } from "./x-axis";

it("marks an axis of the clock at round times of the clock, wherever the run began", () => {
  const zero = new Date(2026, 10, 27, 16, 24, 43, 700).getTime();
  const marks = ticksOf("time", zero)?.(0, 440, 5) ?? [];

  expect(marks.map(formatOf("time", zero, [0, 440]))).toEqual([
    "16:26:00",
    "16:28:00",
    "16:30:00",
    "16:32:00",
  ]);
  const days = ticksOf("time", zero)?.(0, 3 * 86_400, 3) ?? [];
  expect(days.map(formatOf("time", zero, [0, 3 * 86_400]))).toEqual([
    "28 Nov 00:00",
    "29 Nov 00:00",
    "30 Nov 00:00",
  ]);
});

it("marks an axis of durations at round ones, and leaves steps as they are", () => {
  const marks = ticksOf("relative", 0)?.(0, 440, 5) ?? [];

  expect(marks.map(formatOf("relative", 0, [0, 440]))).toEqual(["0.0 s", "2 m 00 s", "4 m 00 s", "6 m 00 s"]);
  expect(ticksOf("step", 0)).toBeUndefined();
});
