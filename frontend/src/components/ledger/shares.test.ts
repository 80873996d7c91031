import { expect, it } from "vitest";
import { formatCost, formatShare, formatSpent } from "./shares";

it.each([
  [0, 10, "0.0 %"],
  [0.001, 10, "< 0.1 %"],
  [0.994, 10, "9.9 %"],
  [5, 10, "50 %"],
  [1, 0, "–"],
])("shows %s of %s as %s", (part, whole, text) => {
  expect(formatShare(part, whole)).toBe(text);
});

it("shows a cost with its currency, and that a kind has no rate", () => {
  expect(formatCost(1234.5, "EUR")).toBe("1,234.50 EUR");
  expect(formatCost(0.004, "")).toBe("0.00");
  expect(formatCost(null, "EUR")).toBe("no rate");
});

it("shows what is too short for a tenth of a second as such, and nothing as nothing", () => {
  expect([0, 0.03, 0.06, 90].map(formatSpent)).toEqual(["0.0 s", "< 0.1 s", "0.1 s", "1 m 30 s"]);
});
