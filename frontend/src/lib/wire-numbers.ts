/** Numbers as the API sends them: JSON has no NaN or infinities, they come as strings. */
export type WireNumber = number | string | null | undefined;

const SPECIAL: Record<string, number> = {
  NaN: Number.NaN,
  Infinity: Number.POSITIVE_INFINITY,
  "-Infinity": Number.NEGATIVE_INFINITY,
};

/** A number, NaN and infinities included; `null` where nothing was reported. */
export function fromWire(value: WireNumber): number | null {
  if (value === null || value === undefined) return null;
  if (typeof value === "number") return value;
  return SPECIAL[value] ?? null;
}

/** Values of an array as it was recorded, or `null` where only statistics were kept. */
export function valuesFromWire(values: readonly WireNumber[] | null | undefined): number[] | null {
  return values ? values.map((value) => fromWire(value) ?? Number.NaN) : null;
}

/** Strings, of which nothing is a number, and numbers. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MARK = "\u0001whole number ";

/** JSON in which whole numbers that a float would round are `bigint`s; `null` where the text holds none. */
export function parseExactly(text: string): unknown {
  let found = false;
  const marked = text.replace(TOKENS, (token) => {
    if (!/^-?\d+$/.test(token) || Number.isSafeInteger(Number(token))) return token;
    found = true;
    return JSON.stringify(MARK + token);
  });
  return found ? JSON.parse(marked, (_, value) => exactOf(value)) : null;
}

function exactOf(value: unknown): unknown {
  if (typeof value !== "string" || !value.startsWith(MARK)) return value;
  const digits = value.slice(MARK.length);
  return /^-?\d+$/.test(digits) ? BigInt(digits) : value;
}

/** As `JSON.stringify` writes a value of JSON, with the `bigint`s of `parseExactly` in full. */
export function exactText(value: unknown): string {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(exactText).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const entries = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}:${exactText(each)}`);
  return `{${entries.join(",")}}`;
}
