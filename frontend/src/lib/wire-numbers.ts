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
