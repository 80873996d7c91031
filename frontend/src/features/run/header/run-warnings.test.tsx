import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import { RunWarnings } from "./run-warnings";

describe("warnings of a run", () => {
  afterEach(cleanup);

  it("stand in its header", () => {
    render(
      <RunWarnings run={{ warnings: [{ code: "no_shared_store", message: "Its hosts share no store." }] }} />,
    );
    expect(screen.getByRole("note").textContent).toBe("Its hosts share no store.");
  });

  it("take no room where there are none", () => {
    const { container } = render(<RunWarnings run={{ warnings: [] }} />);
    expect(container.childElementCount).toBe(0);
  });
});
