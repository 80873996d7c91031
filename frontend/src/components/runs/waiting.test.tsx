import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { cleanup, render, screen } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, describe, expect, it } from "vitest";
import type { Why } from "@/api/schema";
import { Waiting } from "./waiting";

const FIRST = "run_01M827GP5REN69KA1ZEVNNF011";
const SECOND = "run_01M827GP5REN69KA1ZEVNNF022";
const BUSY: Why = {
  rule: "devices_busy",
  sentence: "Needs 4 replicas; alpha has 2 devices free.",
  evidence: {
    wanted: 4,
    free: 2,
    missing_records: { alpha: 3, beta: 1 },
    hosts: ["alpha", "beta"],
    until: "2026-01-02T03:04:05.600000+00:00",
    host: "2026-99-99T99:99:99Z",
  },
  remedy: "It starts when enough devices are free.",
  position: 2,
  suggestions: [
    {
      kind: "replicas",
      replicas: 2,
      runs: [],
      sentence: "Submitted with 2 replicas it would start now.",
    },
    { kind: "finish", runs: [FIRST, SECOND], sentence: `Starts when ${FIRST}, ${SECOND} end.` },
  ],
  starts: { at: "2026-01-02T03:04:05Z", basis: `the time limit of ${SECOND}` },
};

function shown(node: ReactNode): Promise<HTMLElement> {
  const routeTree = createRootRoute({ component: () => node });
  render(<RouterProvider router={createRouter({ routeTree, history: createMemoryHistory() }) as never} />);
  return screen.findByTestId("run-why");
}

describe("why a run waits", () => {
  afterEach(cleanup);

  it("is the rule, the place in the queue, what would let it start, when it will, and what was seen", async () => {
    const why = await shown(<Waiting why={BUSY} />);
    expect(why.dataset.rule).toBe("devices_busy");
    expect(why.textContent).toContain("alpha has 2 devices free. Position 2 in the queue.");
    expect(screen.getAllByRole("listitem").map((item) => item.textContent)).toEqual([
      "Submitted with 2 replicas it would start now.",
      "Starts when r-nf011, r-nf022 end.",
    ]);
    expect(screen.getAllByRole("link").map((link) => link.getAttribute("href"))).toEqual([
      `/runs/${FIRST}/metrics`,
      `/runs/${SECOND}/metrics`,
      `/runs/${SECOND}/metrics`,
    ]);
    expect(why.textContent).toContain("by the time limit of r-nf022.");
    expect(why.textContent).toContain("wanted 4free 2missing records alpha 3, beta 1hosts alpha and beta");
    expect(why.textContent).toContain("until 2026-01-02 03:04:05 UTChost 2026-99-99T99:99:99Z");
  });

  it("tells a start that has passed as overdue, never as a time in the past", async () => {
    const overdue = { ...BUSY, starts: { overdue_s: 185, basis: "its steps" } };
    expect((await shown(<Waiting why={overdue} />)).textContent).toContain(
      "Expected to start by now, 3 m 05 s over, by its steps.",
    );
    cleanup();
    const passed = {
      ...BUSY,
      starts: { at: new Date(Date.now() - 65_000).toISOString(), basis: "its steps" },
    };
    expect((await shown(<Waiting why={passed} />)).textContent).toMatch(
      /Expected to start by now, 1 m 0\d s over, by its steps\./,
    );
  });

  it("tells when it will start while that is to come", async () => {
    const starts = { at: "2999-01-02T03:04:05Z", basis: "its steps" };
    expect((await shown(<Waiting why={{ ...BUSY, starts }} />)).textContent).toContain(
      "Expected to start at 2999-01-02 03:04:05 UTC, by its steps.",
    );
  });

  it("names no place, suggestion or time where there is none", async () => {
    const bare = { ...BUSY, position: null, suggestions: [], starts: null, evidence: {} };
    expect((await shown(<Waiting why={bare} />)).textContent).toBe(`${BUSY.sentence}${BUSY.remedy}`);
  });
});
