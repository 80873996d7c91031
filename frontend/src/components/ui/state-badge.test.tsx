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

  it("shows a state that it does not know by its own name", () => {
    render(<StateBadge state="HIBERNATING" />);
    expect(screen.getByText("HIBERNATING")).toBeTruthy();
  });
});
