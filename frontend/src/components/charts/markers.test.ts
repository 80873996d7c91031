import { describe, expect, it, vi } from "vitest";
import { drawMarkers } from "./markers";

describe("drawMarkers", () => {
  it("leaves room for the whole of a sign at either end", () => {
    vi.stubGlobal("window", { devicePixelRatio: 2 });
    const rect = vi.fn();
    const lineTo = vi.fn();
    const rest = Object.fromEntries(
      ["save", "beginPath", "clip", "closePath", "fill", "restore"].map((name) => [name, vi.fn()]),
    );
    const chart = {
      ctx: { ...rest, rect, lineTo },
      bbox: { left: 100, top: 20, width: 400, height: 200 },
      valToPos: (x: number) => 100 + 400 * x,
    };
    const markers = [0, 1].flatMap((x) => [
      { x, kind: "checkpoint" as const, text: "" },
      { x, kind: "not finite" as const, text: "" },
    ]);
    drawMarkers(chart as never, markers, null, { text: "", warn: "" } as never);
    vi.unstubAllGlobals();

    const [[left, , width]] = rect.mock.calls as [[number, number, number]];
    const drawn = lineTo.mock.calls.map(([x]) => x as number);
    expect(left).toBeLessThanOrEqual(Math.min(...drawn));
    expect(left + width).toBeGreaterThanOrEqual(Math.max(...drawn));
    expect(Math.max(...drawn)).toBeGreaterThan(500);
  });
});
