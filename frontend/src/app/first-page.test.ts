import { describe, expect, it, vi } from "vitest";
import { goAhead } from "./ahead";
import { firstPage } from "./first-page";

/** Whether the page is rendered after so many milliseconds. */
async function isRendered(page: Promise<void>, after: number): Promise<boolean> {
  let rendered = false;
  void page.then(() => {
    rendered = true;
  });
  await vi.advanceTimersByTimeAsync(after);
  return rendered;
}

describe("firstPage", () => {
  it("waits for the code and for what was asked ahead", async () => {
    vi.useFakeTimers();
    vi.stubGlobal("window", globalThis);
    let answer = () => {};
    const promise = new Promise<void>((done) => {
      answer = done;
    });
    const load = async () => goAhead(promise);
    const page = firstPage({ load });
    expect(await isRendered(page, 100)).toBe(false);
    answer();
    expect(await isRendered(page, 0)).toBe(true);
  });

  it("waits no longer than a quarter of a second, and not for what fails", async () => {
    vi.useFakeTimers();
    vi.stubGlobal("window", globalThis);
    const slow = firstPage({ load: () => new Promise(() => {}) });
    expect(await isRendered(slow, 249)).toBe(false);
    expect(await isRendered(slow, 1)).toBe(true);
    expect(await isRendered(firstPage({ load: () => Promise.reject(new Error("no code")) }), 0)).toBe(true);
  });
});
