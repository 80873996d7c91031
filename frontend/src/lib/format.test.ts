import { describe, expect, it } from "vitest";
import {
  count,
  formatAge,
  formatBytes,
  formatDuration,
  formatInteger,
  formatNumber,
  formatRate,
  formatUtc,
  NOT_REPORTED,
  secondsBetween,
  shortId,
} from "./format";

describe("format", () => {
  it.each([
    [0, "0"],
    [0.04213, "0.04213"],
    [12.4, "12.4"],
    [1234.5, "1,235"],
    [123456, "123,456"],
    [3.2e-7, "3.2e-7"],
    [1e9, "1e+9"],
    [-0.5, "-0.5"],
    ["NaN", "NaN"],
    [Number.NaN, "NaN"],
    [Number.NEGATIVE_INFINITY, "-Infinity"],
    [null, NOT_REPORTED],
  ])("writes the number %s as %s", (value, text) => {
    expect(formatNumber(value)).toBe(text);
  });

  it.each([
    [0.4, "0.4 s"],
    [9.96, "10 s"],
    [59.6, "1 m 00 s"],
    [185, "3 m 05 s"],
    [7_620, "2 h 07 m"],
    [273_600, "3 d 04 h"],
    [null, NOT_REPORTED],
  ])("writes %s seconds as %s", (seconds, text) => {
    expect(formatDuration(seconds)).toBe(text);
  });

  it.each([
    [0, "0 B"],
    [512, "512 B"],
    [1_536, "1.5 KiB"],
    [150_000_000_000, "140 GiB"],
    [null, NOT_REPORTED],
  ])("writes %s bytes as %s", (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });

  it.each([
    [0.416, "0.42"],
    [12.44, "12.4"],
    [310.2, "310"],
    [1_234, "1,234"],
    [449_362_960_776_076, "4.49e+14"],
  ])("writes the rate %s as %s", (rate, text) => {
    expect(formatRate(rate)).toBe(text);
  });

  it("never shows an unknown value as 0", () => {
    expect([formatInteger(null), formatRate(undefined), formatUtc(null), formatAge(null, 0)]).toEqual(
      Array(4).fill(NOT_REPORTED),
    );
  });

  it("says ages in one unit, and a clock ahead of ours as now", () => {
    const now = Date.parse("2026-11-20T12:00:00Z");
    const ages = [
      "2026-11-20T12:00:03Z",
      "2026-11-20T11:59:18Z",
      "2026-11-20T11:57:00Z",
      "2026-11-18T10:00:00Z",
    ];
    expect(ages.map((moment) => formatAge(moment, now))).toEqual(["now", "42 s ago", "3 min ago", "2 d ago"]);
  });

  it("measures up to now where the end has not come, and never below zero", () => {
    const now = Date.parse("2026-11-20T12:00:10Z");
    expect(secondsBetween("2026-11-20T12:00:00Z", null, now)).toBe(10);
    expect(secondsBetween("2026-11-20T12:00:30Z", null, now)).toBe(0);
    expect(secondsBetween(null, null, now)).toBeNull();
  });

  it("shortens an id to its distinguishing end", () => {
    expect(shortId("run_01JD0ABCDEFGHJKMNPQR7KQ2M")).toBe("r-7kq2m");
  });

  it("counts in singular and plural", () => {
    expect([count(1, "device"), count(1_200, "device")]).toEqual(["1 device", "1,200 devices"]);
  });
});
