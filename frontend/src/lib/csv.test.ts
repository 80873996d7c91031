import { expect, it } from "vitest";
import { cell } from "./csv";

it.each([
  "=1",
  "+1",
  "-1",
  "@SUM(1)",
  "\t=1",
  "\r=1",
  "\n=1",
  "\uff1d1",
  "\uff0b1",
  "\uff0d1",
  "\uff20SUM(1)",
])("keeps %j as text", (text) => expect(cell(text).replaceAll('"', "")).toBe(`'${text}`));

it("leaves alone what no spreadsheet runs", () => {
  expect(["loss", "a=1", " =1", "1e-5"].map(cell)).toEqual(["loss", "a=1", " =1", "1e-5"]);
});
