import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { WaitLine } from "./run-columns";

describe("a run in a list", () => {
  afterEach(cleanup);

  it("says under its name that its host has moved, though it counts as running", () => {
    render(<WaitLine run={{ wait: { rule: "host_moved", phrase: "host has moved" } }} />);
    expect(screen.getByText("host has moved").className).toContain("text-warn");
  });

  it("says nothing there while it runs undisturbed", () => {
    const { container } = render(<WaitLine run={{ wait: null }} />);
    expect(container.textContent).toBe("");
  });
});
