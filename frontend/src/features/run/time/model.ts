/** The geometry of a run's timeline, and what it says in words. */
import type { Spent, TimeLane, TimePiece } from "@/api/schema";
import { labelOf, NAMES } from "@/components/ledger/names";
import { formatSpent } from "@/components/ledger/shares";
import { formatDuration } from "@/lib/format";

/** What is in the window, in seconds since the run was submitted. */
export interface Range {
  from: number;
  to: number;
}

const LEAST_SPAN_S = 0.01;
const TICKS_S = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800,
  21_600, 43_200, 86_400,
];

/** Round moments within the range, at most `most` of them. */
export function ticksOf({ from, to }: Range, most: number): number[] {
  const least = (to - from) / Math.max(1, most);
  const days = Math.ceil(least / 86_400) * 86_400;
  const step = TICKS_S.find((each) => each >= least) ?? days;
  const first = Math.max(0, Math.ceil(from / step - 1e-9));
  const ticks: number[] = [];
  for (let at = first; at * step <= to && ticks.length < most; at++) ticks.push(at * step);
  return ticks;
}

/** Rectangles of a piece, in shares of the window: several names stand on each other by their share of it. */
export interface Block {
  name: Spent;
  x: number;
  width: number;
  y: number;
  height: number;
}

export function blocksOf(pieces: readonly TimePiece[], { from, to }: Range): Block[] {
  const blocks: Block[] = [];
  for (const piece of pieces) {
    const begin = Math.max(piece.begin_s, from);
    const end = Math.min(piece.end_s, to);
    const total = sumOf(piece);
    if (end <= begin || total <= 0) continue;
    let y = 0;
    for (const name of NAMES) {
      const height = (piece.spent[name] ?? 0) / total;
      if (height === 0) continue;
      blocks.push({ name, x: (begin - from) / (to - from), width: (end - begin) / (to - from), y, height });
      y += height;
    }
  }
  return blocks;
}

function sumOf(piece: TimePiece): number {
  return Object.values(piece.spent).reduce((sum, seconds) => sum + seconds, 0);
}

/** Which of a lane's pieces is at a moment; undefined where it has none. */
export function pieceAt(pieces: readonly TimePiece[], at: number): TimePiece | undefined {
  return pieces.find((piece) => piece.begin_s <= at && at < piece.end_s);
}

/** When each attempt had members, from all lanes that are there. */
export function attemptsOf(lanes: readonly TimeLane[]): { number: number; begin: number; end: number }[] {
  const spans = new Map<number, { number: number; begin: number; end: number }>();
  for (const { pieces } of lanes) {
    for (const { attempt, begin_s: begin, end_s: end } of pieces) {
      if (attempt === null) continue;
      const span = spans.get(attempt);
      if (span) {
        span.begin = Math.min(span.begin, begin);
        span.end = Math.max(span.end, end);
      } else spans.set(attempt, { number: attempt, begin, end });
    }
  }
  return [...spans.values()].sort((a, b) => a.number - b.number);
}

/** `attempt 1 on alpha, from 14 s to 18 s: steps 3.0 s, input 1.0 s` */
export function sentenceOf(piece: TimePiece): string {
  const where =
    piece.attempt === null ? "no attempt" : `attempt ${piece.attempt} on ${piece.host_name ?? "a host"}`;
  const spent = NAMES.filter((name) => (piece.spent[name] ?? 0) > 0)
    .sort((a, b) => (piece.spent[b] ?? 0) - (piece.spent[a] ?? 0))
    .map((name) => `${labelOf(name)} ${formatSpent(piece.spent[name] ?? 0)}`);
  return `${where}, from ${formatDuration(piece.begin_s)} to ${formatDuration(piece.end_s)}: ${spent.join(", ")}`;
}

/** The range `factor` times as wide around its middle, within a run of `total` seconds; undefined is all of it. */
export function zoomed({ from, to }: Range, factor: number, total: number): Range | undefined {
  const middle = (from + to) / 2;
  return within(
    { from: middle - ((to - from) * factor) / 2, to: middle + ((to - from) * factor) / 2 },
    total,
  );
}

/** What of the range is within a run of `total` seconds, in hundredths; undefined where that is all of it, or nothing. */
export function within(range: Range, total: number): Range | undefined {
  const from = Math.floor(Math.max(0, range.from) * 100) / 100;
  const to = Math.ceil(Math.min(total, range.to) * 100) / 100;
  return to - from < LEAST_SPAN_S || (from === 0 && to >= total) ? undefined : { from, to };
}
