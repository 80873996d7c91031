import { describe, expect, it } from "vitest";
import { collapseReturns, plainText, spansOf } from "./ansi";
import { escapePieces } from "./escape";

const ESC = "\u001b";

describe("spansOf", () => {
  it("turns colours and weights into roles and ends them at a reset", () => {
    expect(spansOf(`${ESC}[1;31mfailed${ESC}[0m at step 3`)).toEqual([
      { text: "failed", bold: true, hue: "red" },
      { text: " at step 3" },
    ]);
  });

  it.each([
    ["38;5;9", "red"],
    ["38;2;10;200;30", "green"],
    ["38;5;21", "blue"],
    ["95", "magenta"],
    ["38;5;240", "muted"],
    ["38;2;250;250;250", undefined],
  ])("maps colour %s to the nearest role", (code, hue) => {
    expect(spansOf(`${ESC}[${code}mx`)).toEqual([hue ? { text: "x", hue } : { text: "x" }]);
  });

  it("swallows cursor movements and background colours", () => {
    expect(spansOf(`a${ESC}[2K${ESC}[1Ab${ESC}[48;5;200mc`)).toEqual([
      { text: "a" },
      { text: "b" },
      { text: "c" },
    ]);
  });

  it("shows an escape that begins no sequence as its code", () => {
    expect(spansOf(`${ESC}]8;;http://x`)).toEqual([
      { text: "\\x1b", escaped: true },
      { text: "]8;;http://x" },
    ]);
  });
});

describe("escapePieces", () => {
  it.each([
    ["\u0007", "\\x07"],
    ["\u009b", "\\x9b"],
    ["\u202e", "\\u202e"],
    ["\u2066", "\\u2066"],
    ["\u200b", "\\u200b"],
    ["\ufeff", "\\ufeff"],
    ["\ud800", "\\ud800"],
  ])("shows %j as its code", (character, code) => {
    expect(escapePieces(`a${character}b`)).toEqual([
      { text: "a", escaped: false },
      { text: code, escaped: true },
      { text: "b", escaped: false },
    ]);
  });

  it("leaves tabs, letters of any script and whole surrogate pairs alone", () => {
    expect(escapePieces("a\tעברית 日本 🙂")).toEqual([{ text: "a\tעברית 日本 🙂", escaped: false }]);
  });
});

describe("collapseReturns", () => {
  it("keeps the last state of a progress bar", () => {
    expect(collapseReturns("10%\r20%\r100%")).toBe("100%");
    expect(collapseReturns("100%\r")).toBe("100%");
    expect(collapseReturns(`50%\r${ESC}[K`)).toBe("50%");
    expect(collapseReturns("no returns")).toBe("no returns");
    expect(collapseReturns("\r")).toBe("");
  });
});

describe("plainText", () => {
  it("drops sequences only", () => {
    expect(plainText(`${ESC}[32mok${ESC}[0m done`)).toBe("ok done");
  });
});
