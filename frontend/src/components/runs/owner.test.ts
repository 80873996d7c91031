import { describe, expect, it } from "vitest";
import { ownerFilter } from "./owner";

describe("the filter by an owner", () => {
  it.each([
    [{ name: "ci", id: "tok_1" }, "owner:ci"],
    [{ name: "local admin", id: "ses_1" }, 'owner:"local admin"'],
    [{ name: 'the "ci"', id: "tok_1" }, "owner:tok_1"],
    [{ name: null, id: null }, undefined],
  ])("of %o is %s", (owner, filter) => {
    expect(ownerFilter(owner)).toBe(filter);
  });
});
