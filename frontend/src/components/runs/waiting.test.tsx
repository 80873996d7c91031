import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import type { Why } from "@/api/schema";
import { Waiting } from "./waiting";

const BUSY: Why = {
  rule: "devices_busy",
  sentence: "Needs 4 replicas; alpha has 2 devices free.",
  evidence: { wanted: 4, free: 2, missing_records: { alpha: 3 } },
  remedy: "It starts when enough devices are free.",
  position: 2,
  suggestions: [
    {
      kind: "replicas",
      replicas: 2,
      runs: [],
      sentence: "With 2 replicas it would start now: submit it anew.",
    },
    { kind: "finish", runs: ["run_1"], sentence: "Starts when run_1 ends." },
  ],
  starts: { at: "2026-01-02T03:04:05Z", basis: "the time limit of run_1" },
};

describe("why a run waits", () => {
  afterEach(cleanup);

  it("is the rule, the place in the queue, what would let it start, when it will, and what was seen", () => {
    render(<Waiting why={BUSY} />);
    const why = screen.getByTestId("run-why");
    expect(why.dataset.rule).toBe("devices_busy");
    expect(why.textContent).toContain("alpha has 2 devices free. Position 2 in the queue.");
    expect(screen.getAllByRole("listitem").map((item) => item.textContent)).toEqual(
      BUSY.suggestions.map(({ sentence }) => sentence),
    );
    expect(why.textContent).toContain("by the time limit of run_1.");
    expect(why.textContent).toContain('wanted 4free 2missing records {"alpha":3}');
  });

  it("names no place, suggestion or time where there is none", () => {
    render(<Waiting why={{ ...BUSY, position: null, suggestions: [], starts: null, evidence: {} }} />);
    expect(screen.getByTestId("run-why").textContent).toBe(`${BUSY.sentence}${BUSY.remedy}`);
  });
});
