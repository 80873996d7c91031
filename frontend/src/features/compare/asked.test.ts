import { describe, expect, it } from "vitest";
import { curvesAsked } from "./asked";

const id = (nth: number) => `run_${String(nth).padStart(26, "0")}`;
const ids = (many: number) => Array.from({ length: many }, (_, nth) => id(nth));

describe("curvesAsked", () => {
  it("asks for the bands of few runs, and of many for that of the base", () => {
    expect(curvesAsked({}, ids(8), "loss", 1192).banded).toBe("all");
    expect(curvesAsked({}, ids(50), "loss", 1192).banded).toEqual([id(0)]);
    expect(curvesAsked({ base: id(7) }, ids(50), "loss", 1192).banded).toEqual([id(7)]);
    expect(curvesAsked({ hide: id(0) }, ids(50), "loss", 1192).banded).toEqual([]);
    expect(curvesAsked({ each: true }, ids(50), "loss", 1192).banded).toBe("all");
  });

  it("asks for the bands of those that are drawn once the others are hidden", () => {
    const hide = ids(50).slice(5).join();
    expect(curvesAsked({ hide }, ids(50), "loss", 1192).banded).toEqual(ids(5));
    const draw = [id(3), id(5)].join();
    expect(curvesAsked({ draw }, ids(120), "loss", 1192).banded).toEqual([id(0), id(3), id(5)]);
  });

  it("has fewer buckets the more lines there are, and never more than pixels tell apart", () => {
    const buckets = (many: number) => curvesAsked({}, ids(many), "loss", 1192).buckets;
    expect([2, 20, 50, 100, 400].map(buckets)).toEqual([400, 400, 200, 100, 100]);
  });
});
