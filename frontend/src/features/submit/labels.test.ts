import { describe, expect, it } from "vitest";
import { formatLabels, parseLabels } from "./labels";

describe("labels as text", () => {
  it.each([
    ["", {}],
    ["team=vision, note=a=b", { team: "vision", note: "a=b" }],
    ['note="two words" empty=""', { note: "two words", empty: "" }],
  ])("reads %j", (text, labels) => {
    expect(parseLabels(text)).toEqual(labels);
  });

  it.each(["team", "team=", "=vision", 'note="open', 'note="a"b'])("refuses %j and names it", (text) => {
    expect(() => parseLabels(`owner=ada ${text}`)).toThrow(`${text} is not of the form name=value`);
  });

  it("gives back every value that it wrote", () => {
    const labels = {
      plain: "a=b",
      words: "two words, one comma",
      quoted: 'say "so"',
      lines: "a\nb\\",
      empty: "",
    };
    expect(parseLabels(formatLabels(labels))).toEqual(labels);
  });
});
