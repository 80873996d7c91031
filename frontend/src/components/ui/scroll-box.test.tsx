import { render } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { ScrollBox } from "./scroll-box";

function stopsOf(contentWidth: number): number {
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      disconnect() {}
    },
  );
  vi.spyOn(HTMLElement.prototype, "scrollWidth", "get").mockReturnValue(contentWidth);
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(300);
  return render(<ScrollBox>wide</ScrollBox>).container.querySelectorAll("[tabindex='0']").length;
}

describe("a box that scrolls sideways", () => {
  it("is reached by the keyboard where there is something to scroll", () => {
    expect(stopsOf(600)).toBe(1);
  });

  it("is no stop where all of it is seen", () => {
    expect(stopsOf(300)).toBe(0);
  });
});
