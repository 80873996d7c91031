import { describe, expect, it } from "vitest";
import { andAlso, isExpression, nameAt, nextSort, wholeExpression } from "./expression";
import { columnNames } from "./search";

describe("a filter's text", () => {
  it.each([
    ["params.lr > 0.1", true],
    ["not labels.team", true],
    ["loss<0.3 and job ~ digits", true],
    ["starred", true],
    ["note", true],
    ["notebook", false],
    ["digits", false],
    ["state:failed digits", false],
    ["label:team=vision", false],
    ["notebook android", false],
    ["", false],
  ])("%s is an expression: %s", (text, expected) => {
    expect(isExpression(text)).toBe(expected);
  });

  it.each([
    ["par", 3, "par"],
    ["loss < 0.3 and par", 18, "par"],
    ["(params.l", 9, "params.l"],
    ["loss < 0.", 9, null],
    ["job in (dig", 11, null],
    ["job = 'par", 10, null],
    ["loss < 0.3 an", 13, "an"],
    ["loss < 0.3 and", 14, null],
    ["", 0, null],
  ])("%s at %s names %s", (text, caret, name) => {
    expect(nameAt(text, caret)?.name ?? null).toBe(name);
  });

  it("keeps its meaning with one more condition", () => {
    expect(andAlso("a = 1 or b = 2", "c = 3")).toBe("(a = 1 or b = 2) and c = 3");
    expect(andAlso("a = 1", "c = 3")).toBe("a = 1 and c = 3");
    expect(andAlso(undefined, "c = 3")).toBe("c = 3");
  });

  it("joins switches and expression", () => {
    const query = { where: "loss < 1", state: ["FAILED"], label: ['a=b "c"'], q: "mnist" };
    expect(wholeExpression(query)).toBe(
      'loss < 1 and state in (FAILED) and labels."a" = "b \\"c\\"" and (job ~ "mnist" or id ~ "mnist")',
    );
  });
});

describe("the list", () => {
  it("turns its sort round and back", () => {
    expect([undefined, "loss", "-loss"].map((sort) => nextSort(sort, "loss"))).toEqual([
      "loss",
      "-loss",
      undefined,
    ]);
  });

  it("reads columns with commas in quotes", () => {
    expect(columnNames('params.lr, params."a,b",params.lr,,')).toEqual(["params.lr", 'params."a,b"']);
  });
});
