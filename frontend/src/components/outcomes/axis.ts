import type { JsonValue } from "@/api/schema";
import { extentOf, leastSpan, niceTicks, ROUNDING, shareOf, tickTexts } from "@/components/charts/scale";
import { briefDigits, formatValue } from "@/lib/format";
import { exactText, isUserNumber, type UserNumber } from "@/lib/wire-numbers";

/** Where the values of a parameter or metric stand along an axis, as a share of its length from the low end. */
export interface Axis {
  name: string;
  at: (value: JsonValue | undefined) => number | null;
  ticks: { at: number; text: string }[];
}

const LOG_FROM = 50;
const MAX_TEXTS = 12;
const MAX_CHARACTERS = 16;
/** Of type of 10 px: a digit has 6.2, a text is hardly wider. */
const CHARACTER_PX = 6.4;

/** The axis of an outcome: round numbers, as there is no value that was chosen; by its logarithm where it spans much. */
export function metricAxis(name: string, values: readonly (UserNumber | undefined)[]): Axis {
  return numeric(
    name,
    values.filter((value) => value !== undefined),
    false,
  );
}

/** Numbers by size, on a log scale where they span much; anything else evenly, each value once, as whole numbers that a float mixes up. */
export function axisOf(name: string, values: readonly (JsonValue | undefined)[]): Axis {
  const given = values.filter((value): value is JsonValue => value !== undefined && value !== null);
  const numbers = given.filter(isUserNumber);
  const told = new Set(numbers).size === new Set(numbers.map(Number)).size;
  return told && numbers.length === given.length && numbers.length > 0
    ? numeric(name, numbers, true)
    : categories(name, given);
}

function numeric(name: string, values: readonly UserNumber[], chosen: boolean): Axis {
  const numbers = values.map(Number);
  const [low, high] = extentOf(numbers);
  if (high / 2 - low / 2 <= leastSpan(low, high, ROUNDING.float64))
    return {
      name,
      at: (v) => (isUserNumber(v) ? 0.5 : null),
      ticks: [{ at: 0.5, text: formatValue(values[0] ?? low, 4) }],
    };
  const log = low > 0 && high / low >= LOG_FROM;
  const share = log
    ? (value: number) => shareOf(Math.log10(value), Math.log10(low), Math.log10(high))
    : (value: number) => shareOf(value, low, high);
  const distinct = [...new Set(numbers)];
  const marks =
    chosen && distinct.length <= 6 ? distinct : log ? decades(low, high) : niceTicks(low, high, 5);
  return {
    name,
    at: (value) => (isUserNumber(value) ? share(Number(value)) : null),
    ticks: tickTexts(marks).map((text, i) => ({ at: share(marks[i] ?? low), text })),
  };
}

function categories(name: string, values: readonly JsonValue[]): Axis {
  const texts = [...new Set(values.map(textOf))];
  const share = (text: string) => (texts.length === 1 ? 0.5 : texts.indexOf(text) / (texts.length - 1));
  return {
    name,
    at: (value) =>
      value === undefined || value === null || !texts.includes(textOf(value)) ? null : share(textOf(value)),
    ticks: texts.slice(0, MAX_TEXTS).map((text) => ({ at: share(text), text: shortened(text) })),
  };
}

function shortened(text: string): string {
  const brief = briefDigits(text);
  return brief.length > MAX_CHARACTERS ? `${brief.slice(0, MAX_CHARACTERS - 1)}…` : brief;
}

/** The ticks whose texts do not touch each other along a line, of which each share of it stands at `x`. */
export function apartTicks({ ticks }: Axis, x: (share: number) => number): Axis["ticks"] {
  const kept: Axis["ticks"] = [];
  const half = ({ text }: Axis["ticks"][number]) => (text.length * CHARACTER_PX) / 2;
  for (const tick of [...ticks].sort((a, b) => a.at - b.at)) {
    const before = kept.at(-1);
    if (!before || x(tick.at) - half(tick) > x(before.at) + half(before) + CHARACTER_PX) kept.push(tick);
  }
  return kept;
}

/** Room for the texts of an axis beside it. */
export function textRoom({ ticks }: Axis): number {
  return Math.max(...ticks.map(({ text }) => text.length), 0) * CHARACTER_PX;
}

function decades(low: number, high: number): number[] {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => 10 ** (first + i));
}

function textOf(value: JsonValue): string {
  return typeof value === "string" ? value : exactText(value);
}
