import { describe, expect, it } from "vitest";
import { exactText, parseAnswer, parseExactly } from "./wire-numbers";

const BIG = 1152921504606846977n;

describe("whole numbers beyond those of a float", () => {
  it("are read and written as they are, wherever they stand", () => {
    const text = `{"a":${BIG},"b":[-9007199254740993,0.5,1e300,"${BIG}"],"c":null}`;

    expect(parseExactly(text)).toEqual({ a: BIG, b: [-9007199254740993n, 0.5, 1e300, String(BIG)], c: null });
    expect(exactText(parseExactly(text))).toBe(text.replace("1e300", "1e+300"));
  });

  it("are written like any other JSON: indented, and without what is undefined", () => {
    expect(exactText({ seed: BIG, none: undefined }, 2)).toBe(`{\n  "seed": ${BIG}\n}`);
    expect(exactText(undefined)).toBe("null");
  });

  it("of an answer are exact below the fields of users, at any depth", () => {
    const answer = `{"items":[{"bytes":${BIG},"parameters":{"deep":[{"seed":${BIG}}]}}]}`;

    expect(parseAnswer(answer)).toEqual({
      items: [{ bytes: Number(BIG), parameters: { deep: [{ seed: BIG }] } }],
    });
  });
});
