import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import type { Batch } from "@/api/schema";
import { BatchStates, liveRuns } from "./states";

const OWNER = { name: "tester", id: null };
const BATCH: Batch = {
  id: "bat_01M827GP5REN69KA1ZEVNNF011",
  project: "prj_01M827GP5REN69KA1ZEVNNF011",
  name: "",
  jobs: ["digits"],
  size: 1_000,
  states: { QUEUED: 960, CANCELLED: 40 },
  deleted: 0,
  sweep: null,
  submitted_by: "tester",
  owner: OWNER,
  created_at: "2026-01-02T03:04:05Z",
  complete: true,
  hint: "",
};

describe("the states of a batch", () => {
  afterEach(cleanup);

  it("say how far its cancellation is, until nobody is left to be asked", () => {
    const requested_at = "2026-01-02T03:04:06Z";
    render(<BatchStates batch={{ ...BATCH, cancel: { requested_at, requested_by: OWNER, left: 960 } }} />);
    expect(screen.getByRole("status").textContent).toBe(
      "being cancelled by tester, 960 runs still to be asked to stop",
    );
    cleanup();
    render(<BatchStates batch={{ ...BATCH, cancel: { requested_at, requested_by: OWNER, left: 0 } }} />);
    expect(screen.queryByRole("status")).toBeNull();
  });

  it("count deleted runs apart: they are neither live nor ended", () => {
    const deleted = { ...BATCH, states: { CANCELLED: 40 }, deleted: 960 };
    render(<BatchStates batch={deleted} />);
    expect(screen.getByText("960 deleted")).toBeTruthy();
    expect(liveRuns(deleted)).toBe(0);
  });
});
