import { timeTicks } from "@/components/charts/scale";
import { formatDuration, formatNumber } from "@/lib/format";

/** `time` is the clock, `relative` counts seconds from when the run began. */
export const X_AXES = ["step", "time", "relative"] as const;
export type XAxis = (typeof X_AXES)[number];

export const X_CHOICES = [
  { value: "step", label: "Step" },
  { value: "time", label: "Time" },
  { value: "relative", label: "Relative" },
] as const;

const DAY_S = 86_400;
/** Within so little, seconds do not tell two places apart. */
const SHORT_S = 15;

/**
 * How places of an axis are written.
 *
 * @param zero where an axis of time has its zero, in ms since 1970; the clock needs it
 */
export function formatOf(
  axis: XAxis,
  zero: number | null,
  [first, last]: readonly [number, number],
): (x: number) => string {
  if (axis === "step") return formatStep;
  if (axis === "relative" || zero === null) return formatDuration;
  return (x) => {
    const date = new Date(zero + x * 1000);
    const clock = date.toLocaleTimeString("en-GB");
    if (last - first < SHORT_S) return `${clock}.${Math.floor(date.getMilliseconds() / 100)}`;
    if (last - first < DAY_S) return clock;
    return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${clock.slice(0, 5)}`;
  };
}

/** Where an axis of time has its marks, at most so many between two ends; undefined where any round number will do. */
export type Ticks = (low: number, high: number, most: number) => number[];

export function ticksOf(axis: XAxis, zero: number | null): Ticks | undefined {
  if (axis === "step") return undefined;
  if (axis === "relative" || zero === null) return timeTicks;
  return (low, high, most) => {
    // As this place's clocks go at the beginning; an hour that they skip later moves marks of days by it.
    const ahead = -60 * new Date(zero + low * 1000).getTimezoneOffset();
    return timeTicks(low, high, most, zero / 1000 + ahead);
  };
}

const formatStep = (x: number) => formatNumber(x, 7);

export function xNameOf(axis: XAxis): string {
  return axis === "step" ? "step" : "at";
}

/** Whole steps, or milliseconds, so that the address stays readable. */
export function roundRange(axis: XAxis, from: number, to: number): { from: number; to: number } {
  if (axis === "step") return { from: Math.floor(from), to: Math.max(Math.ceil(to), Math.floor(from) + 1) };
  return { from: Number(from.toFixed(3)), to: Number(to.toFixed(3)) };
}

/** A bucket for each two pixels, in steps of 200, so that a small change of width asks for nothing new. */
export function bucketsFor(width: number, most = 1200): number {
  return Math.min(most, Math.max(200, Math.ceil(width / 400) * 200));
}
