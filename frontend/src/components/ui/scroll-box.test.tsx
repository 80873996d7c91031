import { act, render } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { ScrollBox } from "./scroll-box";

function stopsOf(contentWidth: number): number {
  const observed: (() => void)[] = [];
  vi.stubGlobal(
    "ResizeObserver",
    class {
      constructor(told: () => void) {
        observed.push(told);
      }
      observe() {}
      disconnect() {}
    },
  );
  vi.spyOn(HTMLElement.prototype, "scrollWidth", "get").mockReturnValue(contentWidth);
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(300);
  const { container } = render(<ScrollBox>wide</ScrollBox>);
  act(() => observed.at(-1)?.());
  return container.querySelectorAll("[tabindex='0']").length;
}

describe("a box that scrolls sideways", () => {
  it("is reached by the keyboard where there is something to scroll", () => {
    expect(stopsOf(600)).toBe(1);
  });

  it("is no stop where all of it is seen", () => {
    expect(stopsOf(300)).toBe(0);
  });
});
