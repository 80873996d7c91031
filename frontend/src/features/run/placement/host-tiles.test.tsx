import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { drawHostBars } from "./host-tiles";
import type { Layout } from "./layout";
import type { Paint } from "./paint";

const [WIDTH, LEFT] = [48, 100];
const TOKENS: Record<string, string> = { "--active": "#00f", "--bad": "#f00", "--line": "#ccc" };

beforeEach(() =>
  vi.stubGlobal("getComputedStyle", () => ({ getPropertyValue: (name: string) => TOKENS[name] ?? "#000" })),
);
afterEach(() => vi.unstubAllGlobals());

/** The colour of each pixel along the bar of one host, and how many rectangles it took. */
function draw(devices: number, dead: readonly number[]) {
  const pixels: string[] = Array(WIDTH - 8).fill("");
  let rectangles = 0;
  let changes = 0;
  let color = "";
  const context = {
    get fillStyle() {
      return color;
    },
    set fillStyle(next: string) {
      changes++;
      color = next;
    },
    fillRect(x: number, _y: number, width: number) {
      rectangles++;
      for (let at = Math.floor(x); at < x + width; at++) pixels[at - LEFT - 4] = context.fillStyle;
    },
  };
  const members = Array.from({ length: devices }, (_, at) => at);
  const paints = members.map((at) => ({ fill: "--active", overlay: dead.includes(at) ? "dead" : null }));
  const layout = { cells: [{ x: LEFT, y: 0, width: WIDTH, height: 40 }], hosts: [{ members }] };
  drawHostBars(
    context as unknown as CanvasRenderingContext2D,
    layout as unknown as Layout,
    paints as unknown as Paint[],
    { line: "#ccc" } as Parameters<typeof drawHostBars>[3],
  );
  return { pixels, rectangles, changes };
}

it.each([8, 40, 64, 500])("fills the bar of a host with %i devices and nothing beside it", (devices) => {
  const { pixels } = draw(devices, []);

  expect(pixels).toHaveLength(WIDTH - 8);
  expect(new Set(pixels)).toEqual(new Set(["#00f"]));
});

it("draws neighbours that do the same at once", () => {
  expect(draw(40, []).rectangles).toBe(1);
  expect(draw(40, [7]).rectangles).toBe(3);
});

it("changes the colour as often as there are colours", () => {
  const every = Array.from({ length: 250 }, (_, at) => at * 2);

  expect(draw(8, [1, 3, 5]).changes).toBeLessThanOrEqual(3);
  expect(draw(500, every).changes).toBeLessThanOrEqual(4);
});

it.each([40, 64, 100, 500])("shows one lost device among %i, wherever it is", (devices) => {
  for (let lost = 0; lost < devices; lost++) {
    const { pixels } = draw(devices, [lost]);

    expect(pixels).toHaveLength(WIDTH - 8);
    expect(pixels).toContain("#f00");
    expect(pixels).toContain("#00f");
  }
});
