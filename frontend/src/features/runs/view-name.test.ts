import { describe, expect, it } from "vitest";
import { viewNameFlaw } from "./view-name";

describe("the name of a view", () => {
  it.each(["best rates", "  lr: sweep ", "x".repeat(80), "\u{1f680}".repeat(80), "a.b"])(
    "may be %j",
    (name) => {
      expect(viewNameFlaw(name)).toBeNull();
    },
  );

  it.each([
    ["lr/sweep", /no "\/"/],
    ["   ", /not blank/],
    ["", /not blank/],
    ["..", /"\.\." is no name/],
    ["x".repeat(83), /at most 80 characters: this one has 3 too many/],
  ])("may not be %j", (name, said) => {
    expect(viewNameFlaw(name)).toMatch(said);
  });
});
