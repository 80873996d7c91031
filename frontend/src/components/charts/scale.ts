import { formatNumber } from "@/lib/format";

/** A linear scale of numbers to shares of a width, 0 to 1. */
export interface Scale {
  low: number;
  high: number;
  /** Share of the width at which a value stands. */
  at: (value: number) => number;
  ticks: number[];
}

/** Differences below these shares of the values' size are rounding, of one number or of a float32. */
export const ROUNDING = { float64: 1e-12, float32: 1e-6 } as const;

/** Covers all values with a margin on both sides; values that differ by no more than rounding stand in the middle. */
export function scaleOver(values: readonly number[], wantedTicks = 4): Scale | null {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return null;
  const [least, most] = extentOf(finite);
  const same = span(least, most) <= leastSpan(least, most, ROUNDING.float64);
  const margin = same ? Math.max(Math.abs(least), Math.abs(most)) * 0.05 || 1 : (most - least) * 0.06;
  const [low, high] = Number.isFinite(margin)
    ? [clampToFinite(least - margin), clampToFinite(most + margin)]
    : [-Number.MAX_VALUE, Number.MAX_VALUE];
  return { low, high, at: (value) => shareOf(value, low, high), ticks: niceTicks(low, high, wantedTicks) };
}

/** Where a value lies between two ends; halves, as the span itself may be too large for a number. */
export function shareOf(value: number, low: number, high: number): number {
  return (value / 2 - low / 2) / (high / 2 - low / 2);
}

/** The least that an axis around these values spans, so that rounding does not fill it. */
export function leastSpan(low: number, high: number, share: number): number {
  return Math.max(Math.abs(low), Math.abs(high)) * share;
}

/** Round numbers between two ends: steps of 1, 2 or 5 times a power of ten. */
export function niceTicks(low: number, high: number, wanted: number): number[] {
  const parts = Math.max(1, wanted);
  const rough = high / parts - low / parts;
  // Powers of ten below this are not told apart any more.
  if (!(rough > 1e-300) || !Number.isFinite(rough)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const off = (factor: number) => Math.abs(Math.log(factor) + Math.log(power) - Math.log(rough));
  const step = power * [1, 2, 5, 10].reduce((best, factor) => (off(factor) < off(best) ? factor : best));
  const first = Math.ceil(low / step);
  const count = Math.min(100, Math.floor(high / step) - first + 1);
  const ticks = Array.from({ length: Math.max(0, count) }, (_, i) =>
    Number(((first + i) * step).toPrecision(12)),
  );
  return [...new Set(ticks)].filter(Number.isFinite);
}

const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86_400;
/** Seconds between two marks of a clock; below and above, 1, 2 or 5 times a power of ten of seconds or of days. */
const MARKS_APART_S = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE_S),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR_S),
  ...[1, 2, 7, 14].map((days) => days * DAY_S),
];

/**
 * Round moments between two ends, in seconds: at most so many, at whole seconds, minutes, hours or days of a clock.
 *
 * @param clock what the clock says, in seconds, where the axis has its zero
 */
export function timeTicks(low: number, high: number, most: number, clock = 0): number[] {
  const rough = (high - low) / Math.max(1, most);
  if (!(rough > 0)) return [];
  const step =
    rough < 1
      ? roundUp(rough)
      : (MARKS_APART_S.find((each) => each >= rough) ?? roundUp(rough / DAY_S) * DAY_S);
  // Of a large number the part within a step is enough, and has all its digits.
  const zero = clock % Math.max(step, 1);
  const first = Math.ceil((low + zero) / step);
  const count = Math.floor((high + zero) / step) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, i) => (first + i) * step - zero);
}

function roundUp(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((factor) => factor * power >= least) ?? 10);
}

/** Each number in as few digits as tell all of them apart. */
export function tickTexts(values: readonly number[], least = 4): string[] {
  const distinct = new Set(values).size;
  for (let digits = least; digits < 17; digits++) {
    const texts = values.map((value) => formatNumber(value, digits));
    if (new Set(texts).size === distinct) return texts;
  }
  return values.map(String);
}

export function extentOf(values: readonly number[]): [number, number] {
  return values.reduce<[number, number]>(
    ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
    [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
  );
}

function span(low: number, high: number): number {
  return high / 2 - low / 2;
}

function clampToFinite(value: number): number {
  return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, value));
}
