import { fireEvent, render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { CopyMenu } from "./copy-menu";

describe("CopyMenu", () => {
  it("opens within the main landmark, also where it was rendered together with it", async () => {
    render(
      <main id="main">
        <CopyMenu choices={[{ name: "CLI", text: "drumline runs", note: "drumline" }]} label="Copy as" />
      </main>,
    );

    fireEvent.click(screen.getByRole("button", { name: "Copy as" }));

    const item = await screen.findByRole("menuitem", { name: "CLI drumline" });
    expect(screen.getByRole("main").contains(item)).toBe(true);
  });
});
