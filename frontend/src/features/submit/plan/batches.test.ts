import { expect, test } from "vitest";
import { rowsText } from "./batches";

test.each([
  [[32, 32, 32], "3 × 32"],
  [[20, 20, 17], "2 × 20 + 17"],
  [[5], "5"],
  [[2, 1, 2, 2], "2 + 1 + 2 × 2"],
  [[], ""],
])("rows %j read as %s", (rows, text) => {
  expect(rowsText(rows)).toBe(text);
});
