import { describe, expect, it } from "vitest";
import {
  finiteNumber,
  flag,
  nonEmpty,
  oneOf,
  parseSearch,
  stringifySearch,
  wholeNumber,
} from "./search-params";

describe("search parameters", () => {
  it("stay readable in the address", () => {
    expect(stringifySearch({ q: "state:running,queued job:digits", sort: "-created" })).toBe(
      "?q=state:running,queued+job:digits&sort=-created",
    );
  });

  it("come back as they went", () => {
    const search = { q: "label:team=vision & more", sel: "device:dev_1", n: "007" };
    expect(parseSearch(stringifySearch(search))).toEqual(search);
  });

  it("are left out where they say nothing", () => {
    expect(stringifySearch({ a: undefined, b: null, c: "", d: false })).toBe("");
  });

  it("fall back where a value is not understood", () => {
    expect(oneOf("blue", ["replica", "state"])).toBeUndefined();
    expect([wholeNumber("12"), wholeNumber("1.5"), wholeNumber("-1"), wholeNumber("")]).toEqual([
      12,
      undefined,
      undefined,
      undefined,
    ]);
    expect([finiteNumber("-1.5"), finiteNumber("Infinity"), finiteNumber("x")]).toEqual([
      -1.5,
      undefined,
      undefined,
    ]);
    expect([flag("1"), flag("0"), nonEmpty("")]).toEqual([true, undefined, undefined]);
  });
});
