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

/** A number of a user's: a whole one that a float would round is a `bigint`. */
export type UserNumber = number | bigint;

/** Whether a value is a number, of either kind. */
export function isUserNumber(value: unknown): value is UserNumber {
  return typeof value === "number" || typeof value === "bigint";
}

/** Strings, of which nothing is a number, and numbers. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MARK = "\u0001whole number ";
const MARKED = /"\\u0001whole number (-?\d+)"/g;
/** What is there wherever a float would round a whole number. */
const LONG = /(?:^|[^.\d])\d{16}/;
/** Fields of answers that hold what users made: every number below them is theirs, all others are the server's and are counted with. */
const OF_USERS: ReadonlySet<string> = new Set(
  "parameters result summary fields metrics value default defaults old new".split(" "),
);

/** JSON in which whole numbers that a float would round are `bigint`s. */
export function parseExactly(text: string): unknown {
  return parse(text, (value) => everywhere(value));
}

/** An answer of the server, in which those of users' numbers are `bigint`s that a float would round. */
export function parseAnswer(text: string): unknown {
  return parse(text, (value) => belowFields(value));
}

function parse(text: string, unmark: (value: unknown) => unknown): unknown {
  if (!LONG.test(text)) return JSON.parse(text);
  let found = false;
  const marked = text.replace(TOKENS, (token) => {
    if (!/^-?\d+$/.test(token) || Number.isSafeInteger(Number(token))) return token;
    found = true;
    return JSON.stringify(MARK + token);
  });
  return found ? unmark(JSON.parse(marked)) : JSON.parse(text);
}

function everywhere(value: unknown): unknown {
  return mapValues(exactOf(value), everywhere);
}

function belowFields(value: unknown): unknown {
  const digits = exactOf(value);
  if (typeof digits === "bigint") return Number(digits);
  return mapValues(value, (inner, name) => (OF_USERS.has(name) ? everywhere(inner) : belowFields(inner)));
}

function mapValues(value: unknown, of: (inner: unknown, name: string) => unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((inner) => of(inner, ""));
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, of(inner, name)]));
}

function exactOf(value: unknown): unknown {
  if (typeof value !== "string" || !value.startsWith(MARK)) return value;
  const digits = value.slice(MARK.length);
  return /^-?\d+$/.test(digits) ? BigInt(digits) : value;
}

/** As `JSON.stringify` writes a value of JSON, with `bigint`s in full. */
export function exactText(value: unknown, indent?: number): string {
  const marked = JSON.stringify(
    value,
    (_, inner) => (typeof inner === "bigint" ? `${MARK}${inner}` : inner),
    indent,
  );
  return marked?.replace(MARKED, "$1") ?? "null";
}
