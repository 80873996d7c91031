import { beforeEach, describe, expect, it, vi } from "vitest";
import { followedRuns, followRun, MOST_FOLLOWED } from "./choice";

const id = (nth: number) => `run_${String(nth).padStart(26, "0")}`;

describe("runs that are followed", () => {
  let kept: Map<string, string>;
  let told: number;

  beforeEach(() => {
    kept = new Map();
    told = 0;
    vi.stubGlobal("window", {
      dispatchEvent: () => {
        told += 1;
      },
    });
    vi.stubGlobal("localStorage", {
      getItem: (key: string) => kept.get(key) ?? null,
      setItem: (key: string, value: string) => kept.set(key, value),
      removeItem: (key: string) => kept.delete(key),
    });
  });

  it("are each there once until they are followed no longer", () => {
    for (const nth of [1, 2, 1]) followRun(id(nth), true);
    expect(followedRuns()).toEqual([id(2), id(1)]);
    followRun(id(2), false);
    followRun(id(1), false);
    expect(followedRuns()).toEqual([]);
    expect(kept.size).toBe(0);
    expect(told).toBe(5);
  });

  it("are at most so many, the newest ones", () => {
    for (let nth = 0; nth < MOST_FOLLOWED + 3; nth += 1) followRun(id(nth), true);
    expect(followedRuns()).toHaveLength(MOST_FOLLOWED);
    expect(followedRuns()[0]).toBe(id(3));
  });

  it("are none of what somebody else stored", () => {
    kept.set("drumline.followed", `x,,${id(4)},run_1,${"y".repeat(100_000)}`);
    expect(followedRuns()).toEqual([id(4)]);
  });
});
