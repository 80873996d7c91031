import { describe, expect, it } from "vitest";
import { fromLocalTime, momentOf, toLocalTime } from "./local-time";

describe("a local time", () => {
  it.each(["2026-01-20T14:03:22.000Z", "2026-07-20T23:59:59.000Z", "2026-03-29T00:30:00.000Z"])(
    "names the moment %s that it shows",
    (moment) => {
      expect(fromLocalTime(toLocalTime(moment))).toBe(moment);
    },
  );

  it("is none while the field is not filled in", () => {
    expect(fromLocalTime("")).toBeUndefined();
  });
});

describe("a moment in the address", () => {
  it("is told in UTC, and is none where it makes no sense", () => {
    expect([momentOf("2026-11-20T15:03:22+01:00"), momentOf("yesterday 1"), momentOf("2026-13-01T")]).toEqual(
      ["2026-11-20T14:03:22.000Z", undefined, undefined],
    );
  });
});
