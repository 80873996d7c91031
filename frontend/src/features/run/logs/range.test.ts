import { describe, expect, it } from "vitest";
import { extendRange, formatRange, parseRange } from "./range";
import { LINE_HEIGHT, MAX_SCROLL_HEIGHT, scrollHeight, scrollTopFor, viewportAt } from "./scroll";

describe("line ranges in the address", () => {
  it.each([
    ["#L120", { from: 120, to: 120 }],
    ["L120-L180", { from: 120, to: 180 }],
    ["#L180-120", { from: 120, to: 180 }],
    ["#L0", null],
    ["#top", null],
    ["", null],
  ])("reads %j", (hash, range) => {
    expect(parseRange(hash)).toEqual(range);
  });

  it("writes what it reads", () => {
    for (const text of ["L7", "L7-L9"])
      expect(formatRange(parseRange(text) ?? { from: 0, to: 0 })).toBe(text);
  });

  it("stretches from the far end when shift is held", () => {
    expect(extendRange({ from: 10, to: 10 }, 14, true)).toEqual({ from: 10, to: 14 });
    expect(extendRange({ from: 10, to: 14 }, 8, true)).toEqual({ from: 8, to: 14 });
    expect(extendRange({ from: 10, to: 14 }, 8, false)).toEqual({ from: 8, to: 8 });
  });
});

describe("viewportAt", () => {
  it("draws the lines that are visible and says how far the first is cut", () => {
    expect(viewportAt(5 * LINE_HEIGHT + 4, 360, 1000)).toEqual({
      first: 6,
      count: 21,
      offset: 4,
      atEnd: false,
    });
  });

  it("shows all of a short log", () => {
    expect(viewportAt(0, 360, 3)).toEqual({ first: 1, count: 3, offset: 0, atEnd: false });
  });

  it("reaches the last line of five million under the browsers' height limit", () => {
    const lines = 5_000_000;
    const room = scrollHeight(lines) - 400;

    const end = viewportAt(room, 400, lines);

    expect(scrollHeight(lines)).toBe(MAX_SCROLL_HEIGHT);
    expect(end.atEnd).toBe(true);
    expect(end.first + end.count - 1).toBe(lines);
  });

  it("comes back to the line that it scrolled to", () => {
    for (const lines of [500, 5_000_000]) {
      const view = viewportAt(scrollTopFor(321, 400, lines), 400, lines);
      expect(view.first).toBeLessThanOrEqual(321);
      expect(view.first + view.count).toBeGreaterThan(321);
    }
  });
});
