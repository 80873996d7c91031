/** View state in the URL: flat, readable text both ways, so that a link can be read, edited and shared. */

type SearchText = Record<string, string>;

/** Search parameters as text; a repeated key keeps its last value. */
export function parseSearch(search: string): SearchText {
  return Object.fromEntries(new URLSearchParams(search));
}

/** The inverse: undefined, null, empty and false are left out; `:` `,` `/` stay readable. */
export function stringifySearch(search: Record<string, unknown>): string {
  const pairs = Object.entries(search).filter(
    ([, value]) => value !== undefined && value !== null && value !== "" && value !== false,
  );
  const text = new URLSearchParams(pairs.map(([key, value]) => [key, String(value)])).toString();
  return text ? `?${text.replace(/%3A/g, ":").replace(/%2C/g, ",").replace(/%2F/g, "/")}` : "";
}

/** `value` where it is one of `allowed`, else undefined. */
export function oneOf<const T extends string>(value: unknown, allowed: readonly T[]): T | undefined {
  return allowed.find((candidate) => candidate === value);
}

/** A whole number of at least `min`, else undefined. */
export function wholeNumber(value: unknown, min = 0): number | undefined {
  const number = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof number === "number" && Number.isInteger(number) && number >= min ? number : undefined;
}

/** Any finite number, else undefined. */
export function finiteNumber(value: unknown): number | undefined {
  const number = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
}

/** Text that is not empty, else undefined. */
export function nonEmpty(value: unknown): string | undefined {
  return typeof value === "string" && value !== ""
    ? value
    : typeof value === "number"
      ? String(value)
      : undefined;
}

/** A switch: `1` and `true` are on. */
export function flag(value: unknown): true | undefined {
  return value === true || value === 1 || value === "1" || value === "true" ? true : undefined;
}

/**
 * Lets a link name any of the parameters or none. What is undefined stays as a key: the router lays the parameters over what
 * the address holds, and only an undefined one hides a value that was not understood.
 */
export function optional<T extends object>(params: T): Partial<T> {
  return params;
}
