import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import type { RunState } from "@/api/schema";
import { StateBadge } from "./state-badge";

const RUN_STATES: Record<RunState, string> = {
  QUEUED: "Queued",
  PLACED: "Starting",
  RUNNING: "Running",
  RETRY_WAIT: "Retrying",
  CANCELLING: "Cancelling",
  SUCCEEDED: "Succeeded",
  FAILED: "Failed",
  CANCELLED: "Cancelled",
};

describe("StateBadge", () => {
  afterEach(cleanup);

  it.each(Object.entries(RUN_STATES))(
    "says %s as a word with an icon, never by colour alone",
    (state, word) => {
      const { container } = render(<StateBadge state={state} />);
      expect(screen.getByText(word)).toBeTruthy();
      expect(container.querySelector("svg")?.childElementCount).toBeGreaterThan(0);
    },
  );

  it("does not tick off a success whose result is no number", () => {
    const { container: plain } = render(<StateBadge state="SUCCEEDED" />);
    const { container: odd } = render(<StateBadge flaw="NaN" state="SUCCEEDED" />);

    expect(screen.getByText("Succeeded, NaN")).toBeTruthy();
    expect(odd.querySelector(".text-ok")).toBeNull();
    expect(odd.querySelector("svg")?.innerHTML).not.toBe(plain.querySelector("svg")?.innerHTML);
  });

  it("shows a state that it does not know by its own name", () => {
    render(<StateBadge state="HIBERNATING" />);
    expect(screen.getByText("HIBERNATING")).toBeTruthy();
  });
});
