import { describe, expect, it } from "vitest";
import type { Attempt, Checkpoint } from "@/api/schema";
import { kindsWithin } from "@/components/charts/markers";
import { markersOf } from "./markers";
import { opensByItself } from "./opening";

const attempts = [
  { number: 2, resumed_step: 40, started_at: "2026-01-01T00:01:00Z" },
  { number: 1, resumed_step: null, started_at: "2026-01-01T00:00:00Z" },
] as Attempt[];
const checkpoints = [{ step: 40, created_at: "2026-01-01T00:00:30Z" }] as Checkpoint[];

describe("markersOf", () => {
  it("marks checkpoints and further attempts where they stand on the axis", () => {
    const zero = Date.parse("2026-01-01T00:00:00Z");
    const places = (axis: "step" | "relative", from: number | null) =>
      markersOf(attempts, checkpoints, axis, from).map(({ kind, x }) => [kind, x]);

    expect(places("step", null)).toEqual([
      ["checkpoint", 40],
      ["attempt", 40],
    ]);
    expect(places("relative", zero)).toEqual([
      ["checkpoint", 30],
      ["attempt", 60],
    ]);
    expect(places("relative", null)).toEqual([]);
  });

  it("names in the legend only what is in sight", () => {
    const markers = markersOf(attempts, checkpoints, "step", null);

    expect(kindsWithin(markers, [0, 100])).toEqual(["checkpoint", "attempt"]);
    expect(kindsWithin(markers, [50, 100])).toEqual([]);
  });
});

describe("opensByItself", () => {
  const groups = (...sizes: number[]) =>
    sizes.map((names, at) => ({ group: at === 3 ? "sys" : `g${at}`, names }));

  it("opens small groups and leaves large ones to a press; speed is always open", () => {
    expect([...opensByItself(groups(2, 300, 30, 3))]).toEqual(["g0", "g2", "sys"]);
  });

  it("opens the only group, however large", () => {
    expect(opensByItself(groups(5000)).size).toBe(1);
  });
});
