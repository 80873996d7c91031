import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { Gap } from "@/api/schema";
import { LostTraces } from "./lost-traces";

afterEach(cleanup);

const gap = (number: number): Gap => ({
  id: `gap_${number}`,
  attempt: "att_1",
  member: "mem_1",
  what: "profile",
  count: 1,
  size_bytes: 0,
  detail: `step ${number} (call ${number} of strategy.run): the program ended before its trace was read`,
  first_byte: null,
  next_byte: null,
  after_step: null,
  after: null,
  before_step: null,
  before: null,
  recorded_at: "2026-01-01T00:00:00Z",
});

it("names the step of each trace that is lost, of many the newest", () => {
  render(<LostTraces lost={[9, 8, 7, 6, 5, 4, 3].map(gap)} />);
  const items = screen.getAllByRole("listitem").map(({ textContent }) => textContent);
  expect(items).toHaveLength(6);
  expect(items[0]).toBe(
    "Lost: step 9 (call 9 of strategy.run): the program ended before its trace was read.",
  );
  expect(items[5]).toBe("And 2 more.");
});

it("says nothing where none is lost", () => {
  const { container } = render(<LostTraces lost={[]} />);
  expect(container.textContent).toBe("");
});
