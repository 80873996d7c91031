/** Numbers, sizes and times as text. A value that nobody reported is said to be so, never shown as 0. */

import type { UserNumber } from "./wire-numbers";

export const NOT_REPORTED = "not reported";

type Maybe<T> = T | null | undefined;

const integers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clocks = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** One formatter for each number of digits: to make one takes as long as to format a hundred numbers. */
const significant = new Map<number, Intl.NumberFormat>();

function significantly(digits: number): Intl.NumberFormat {
  const known = significant.get(digits);
  if (known) return known;
  const made = new Intl.NumberFormat("en", { maximumSignificantDigits: digits });
  significant.set(digits, made);
  return made;
}

/** `12,345` */
export function formatInteger(value: Maybe<number>): string {
  return isNumber(value) ? integers.format(value) : NOT_REPORTED;
}

/** Four significant digits, without exponents where a person can read it: `0.0421`, `12.4`, `1,234`, `3.2e-7`. */
export function formatNumber(value: Maybe<number | string>, digits = 4): string {
  if (typeof value === "string") return value;
  if (!isNumber(value)) return Number.isNaN(value) ? "NaN" : NOT_REPORTED;
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-4) return value.toExponential(Math.max(digits - 1, 0)).replace(/\.?0+e/, "e");
  if (size >= 10 ** digits) return integers.format(value);
  return significantly(digits).format(value);
}

/** A number of a user's: a whole one with all its digits, as it may name something; of any other so many. */
export function formatValue(value: UserNumber, digits = 6): string {
  return typeof value === "bigint" || Number.isSafeInteger(value)
    ? String(value)
    : formatNumber(value, digits);
}

const MOST_DIGITS = 10;

/** Of a long whole number its last digits, which tell it from others, where there is no room for all: `…6846977`. */
export function briefDigits(text: string): string {
  return /^-?\d+$/.test(text) && text.length > MOST_DIGITS ? `…${text.slice(-7)}` : text;
}

/** A rate per second with steady width: `0.0021`, `0.42`, `12.4`, `310`; with an exponent where nobody could read it. */
export function formatRate(value: Maybe<number>): string {
  if (!isNumber(value)) return NOT_REPORTED;
  if (value >= 1e9) return formatNumber(value, 3);
  if (value > 0 && value < 0.1) return significantly(2).format(value);
  const decimals = value < 1 ? 2 : value < 100 ? 1 : 0;
  return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** Binary sizes: `512 B`, `1.5 KiB`, `8.0 GiB`. */
export function formatBytes(value: Maybe<number>): string {
  if (!isNumber(value)) return NOT_REPORTED;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const power = value < 1 ? 0 : Math.min(Math.floor(Math.log2(value) / 10), units.length - 1);
  const scaled = value / 1024 ** power;
  return `${power === 0 || scaled >= 100 ? Math.round(scaled) : scaled.toFixed(1)} ${units[power]}`;
}

/** `0.4 s`, `42 s`, `3 m 05 s`, `2 h 07 m`, `3 d 04 h`. */
export function formatDuration(seconds: Maybe<number>): string {
  if (!isNumber(seconds)) return NOT_REPORTED;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${pad(whole % 60)} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} m`;
  return `${Math.floor(whole / 86_400)} d ${pad(Math.floor((whole % 86_400) / 3600))} h`;
}

/** How long ago, in one unit: `now`, `42 s ago`, `3 min ago`, `5 h ago`, `2 d ago`. */
export function formatAge(moment: Maybe<string>, now: number): string {
  if (!moment) return NOT_REPORTED;
  const seconds = (now - Date.parse(moment)) / 1000;
  if (seconds < 2) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** Local time to the second, with the date unless it is today: `14:03:22`, `20 Nov 14:03:22`. */
export function formatTime(moment: Maybe<string>, now: number): string {
  if (!moment) return NOT_REPORTED;
  const date = new Date(moment);
  const clock = clocks.format(date);
  if (date.toDateString() === new Date(now).toDateString()) return clock;
  const year = date.getFullYear() === new Date(now).getFullYear() ? {} : { year: "numeric" as const };
  return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...year })} ${clock}`;
}

/** UTC, as it is stored: `2026-11-20 14:03:22 UTC`. For titles beside a local time. */
export function formatUtc(moment: Maybe<string>): string {
  return moment ? `${new Date(moment).toISOString().slice(0, 19).replace("T", " ")} UTC` : NOT_REPORTED;
}

/** Seconds between two moments, up to `now` where the second has not come yet; null where the first has not. */
export function secondsBetween(from: Maybe<string>, to: Maybe<string>, now: number): number | null {
  if (!from) return null;
  return Math.max(0, ((to ? Date.parse(to) : now) - Date.parse(from)) / 1000);
}

/** The end of an id, enough to tell neighbours apart: `run_01JD…` becomes `r-7kq2m`. */
export function shortId(id: string): string {
  return `${id[0]}-${id.slice(-5).toLowerCase()}`;
}

/** `a`, `a and b`, `a, b, c and 253 more`: at most four are named, however many there are. */
export function nameSome(names: readonly string[]): string {
  if (names.length > 4)
    return `${names.slice(0, 3).join(", ")} and ${integers.format(names.length - 3)} more`;
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : (names[0] ?? "");
}

/** `1 device`, `8 devices`. */
export function count(n: number, singular: string, plural = `${singular}s`): string {
  return `${integers.format(n)} ${n === 1 ? singular : plural}`;
}

function isNumber(value: Maybe<number>): value is number {
  return typeof value === "number" && !Number.isNaN(value);
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}
