import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { EMPTY_DRAFT } from "./draft";
import { KeptNote } from "./kept-note";

describe("what is kept of an old run", () => {
  afterEach(cleanup);

  it("is shown, and goes back to the defaults", () => {
    const change = vi.fn();
    const origin = { retries: { user: 0, infrastructure: 7 }, parameters: { note: "null" } };
    render(<KeptNote change={change} draft={{ ...EMPTY_DRAFT, origin }} />);
    expect(screen.getByText("retries.infrastructure=7")).toBeTruthy();
    fireEvent.click(screen.getByRole("button", { name: "Use the defaults" }));
    expect(change).toHaveBeenCalledWith({ origin: { parameters: { note: "null" } } });
  });

  it("takes no room where all is as usual", () => {
    const { container } = render(<KeptNote change={vi.fn()} draft={EMPTY_DRAFT} />);
    expect(container.textContent).toBe("");
  });
});
