import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { CursorStore } from "./cursor";

let frames: (() => void)[] = [];

beforeEach(() => {
  frames = [];
  vi.useFakeTimers();
  vi.stubGlobal("requestAnimationFrame", (work: () => void) => frames.push(work));
});
afterEach(() => {
  vi.runAllTimers();
  vi.useRealTimers();
});

/** A frame, and what runs once it is painted. */
function nextFrame(): void {
  for (const work of frames.splice(0)) work();
  vi.advanceTimersByTime(1);
}

/** So long that others tell their texts. */
const pause = () => vi.advanceTimersByTime(30);

/** So many charts of a group, and the texts that they show. */
function group(charts: number) {
  const stores = Array.from({ length: charts }, () => new CursorStore());
  const texts = stores.map((): number | null => null);
  for (const [nth, store] of stores.entries())
    store.watch(() => {
      texts[nth] = store.get()?.at ?? null;
    });
  const move = (at: number, own: number) => {
    for (const [nth, store] of stores.entries()) store.set({ at, line: null, own: nth === own });
  };
  return { stores, texts, move };
}

describe("CursorStore", () => {
  it("knows its place at once, and renders it after the frame of the move", () => {
    const { stores, texts, move } = group(1);

    move(7, 0);

    expect(stores[0]?.get()?.at).toBe(7);
    expect(texts).toEqual([null]);
    nextFrame();
    expect(texts).toEqual([7]);
  });

  it("tells the text under the pointer first, and then the others one by one", () => {
    const { texts, move } = group(4);

    move(1, 2);

    nextFrame();
    expect(texts).toEqual([null, null, 1, null]);
    pause();
    expect(texts).toEqual([1, null, 1, null]);
    pause();
    expect(texts).toEqual([1, 1, 1, null]);
    pause();
    expect(texts).toEqual([1, 1, 1, 1]);
  });

  it("leaves no chart behind while the pointer never rests, and ends with the last place in all", () => {
    const { texts, move } = group(4);

    move(1, 0);
    nextFrame();
    for (let at = 2; at <= 7; at += 1) {
      move(at, 0);
      pause();
    }

    expect(texts[0]).toBe(7);
    expect(texts).not.toContain(null);
    for (let rest = 0; rest < 4; rest += 1) pause();
    expect(texts).toEqual([7, 7, 7, 7]);
    pause();
    expect([frames.length, vi.getTimerCount()]).toEqual([0, 0]);
  });
});
