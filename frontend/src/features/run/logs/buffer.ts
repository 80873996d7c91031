import type { Logs } from "@/api/schema";
import { collapseReturns } from "@/lib/ansi";

/** A line of output as far as it is loaded. */
export interface Line {
  number: number;
  /** Its last state, carriage returns collapsed, control sequences still inside. */
  text: string;
  stderr: boolean;
  /** Says that output is lost here. */
  gap: boolean;
  /** The beginning or the end lies in a page that is not loaded. */
  partial: boolean;
}

interface Part {
  text: string;
  stderr: boolean;
  gap: boolean;
}

/** One answer of the server, cut into lines. */
interface LogPage {
  firstByte: number;
  nextByte: number;
  firstLine: number;
  /** Parts of each line, from `firstLine` on. */
  lines: Part[][];
  /** The last line of the page has its newline. */
  endsWithNewline: boolean;
  used: number;
}

const MAX_LINES = 20_000;
export const PAGE_BYTES = 65_536;

/** Lines of a log, loaded in byte ranges; keeps the most recently used ones, at most 20,000 lines. */
export class LogBuffer {
  private pages: LogPage[] = [];
  private clock = 0;
  /** Bytes of output that the server holds. */
  endByte = 0;
  /** Newlines that the server holds. */
  newlines = 0;
  complete = false;

  constructor(private readonly maxLines = MAX_LINES) {}

  /** Takes an answer of the server; pages that it overlaps are replaced. */
  add(logs: Logs): void {
    this.endByte = Math.max(this.endByte, logs.end_byte);
    this.newlines = Math.max(this.newlines, logs.lines);
    this.complete = logs.complete;
    const page = pageOf(logs, ++this.clock);
    if (!page) return;
    const apart = (other: LogPage): boolean =>
      other.nextByte <= page.firstByte || other.firstByte >= page.nextByte;
    this.pages = [...this.pages.filter(apart), page].sort((a, b) => a.firstByte - b.firstByte);
    this.evict(page);
  }

  /** Lines that can be shown: newlines, and one more where the output does not end with one. */
  get lineCount(): number {
    const last = this.pages.at(-1);
    const reached = last ? last.firstLine + last.lines.length - 1 : 0;
    const unfinished = last && last.nextByte === this.endByte && !last.endsWithNewline ? reached : 0;
    return Math.max(this.newlines, unfinished);
  }

  /** Byte from which the newest output is still missing. */
  get tailByte(): number {
    return this.pages.at(-1)?.nextByte ?? 0;
  }

  /** The line with this number, or `null` where none of it is loaded. */
  line(number: number): Line | null {
    const holding = this.pages.filter((page) => covers(page, number));
    const parts = holding.flatMap((page) => page.lines[number - page.firstLine] ?? []);
    if (parts.length === 0 && holding.length === 0) return null;
    for (const page of holding) page.used = ++this.clock;
    return {
      number,
      text: collapseReturns(parts.map((part) => part.text).join("")),
      stderr: parts.some((part) => part.stderr),
      gap: parts.some((part) => part.gap),
      partial: !this.isWhole(number, holding),
    };
  }

  /** What to ask for so that lines `from` to `to` become visible; `null` where all of them are. */
  missing(from: number, to: number): { from: number; limit: number } | null {
    const last = Math.min(to, this.lineCount);
    for (let number = Math.max(1, from); number <= last; number++) {
      const line = this.line(number);
      if (line && !line.partial) continue;
      return this.gapAround(number);
    }
    return null;
  }

  private gapAround(number: number): { from: number; limit: number } | null {
    const before = this.pages.filter((page) => page.firstLine <= number).at(-1);
    const after = this.pages.find((page) => page.firstByte >= (before?.nextByte ?? 0) && page !== before);
    const gapFrom = before?.nextByte ?? 0;
    const gapTo = after?.firstByte ?? this.endByte;
    if (gapTo <= gapFrom) return null;
    const lineFrom = before ? before.firstLine + before.lines.length - 1 : 1;
    const lineTo = after ? after.firstLine : this.lineCount;
    const share = lineTo > lineFrom ? (number - lineFrom) / (lineTo - lineFrom) : 0;
    const guess = gapFrom + Math.floor(share * (gapTo - gapFrom));
    const from = nearEdge(guess, gapFrom, gapTo);
    return { from, limit: Math.min(PAGE_BYTES, gapTo - from) };
  }

  private isWhole(number: number, holding: readonly LogPage[]): boolean {
    const [first, last] = [holding[0], holding.at(-1)];
    if (!first || !last) return false;
    const joined = holding.every((page, i) => i === 0 || holding[i - 1]?.nextByte === page.firstByte);
    const startKnown = number > first.firstLine || first.firstByte === 0 || this.endsBefore(first);
    const isLastOfPage = number === last.firstLine + last.lines.length - 1;
    const endKnown = !isLastOfPage || last.endsWithNewline || last.nextByte === this.endByte;
    return joined && startKnown && endKnown;
  }

  /** Whether the page before is loaded, touches this one and ends with a newline. */
  private endsBefore(page: LogPage): boolean {
    return this.pages.some((other) => other.nextByte === page.firstByte && other.endsWithNewline);
  }

  private evict(keep: LogPage): void {
    let lines = this.pages.reduce((sum, page) => sum + page.lines.length, 0);
    for (const page of [...this.pages].sort((a, b) => a.used - b.used)) {
      if (lines <= this.maxLines) return;
      if (page === keep) continue;
      lines -= page.lines.length;
      this.pages = this.pages.filter((other) => other !== page);
    }
  }
}

/** Starts at an edge of the gap when the guess is near it, so that pages join up. */
function nearEdge(guess: number, from: number, to: number): number {
  if (guess - from < PAGE_BYTES / 2) return from;
  if (to - guess < PAGE_BYTES / 2) return Math.max(from, to - PAGE_BYTES);
  return Math.max(from, guess - PAGE_BYTES / 4);
}

function covers(page: LogPage, number: number): boolean {
  return number >= page.firstLine && number < page.firstLine + page.lines.length;
}

function pageOf(logs: Logs, used: number): LogPage | null {
  const segments = [...logs.segments]
    .sort((a, b) => a.first_byte - b.first_byte)
    .filter((segment) => segment.text !== "");
  const first = segments[0];
  if (!first) return null;
  const lines: Part[][] = [];
  for (const segment of segments) {
    segment.text.split("\n").forEach((text, i) => {
      const at = segment.first_line + i - first.first_line;
      const parts = lines[at] ?? [];
      lines[at] = parts;
      const kind = { stderr: segment.stream === "stderr", gap: Boolean(segment.gap) };
      if (text !== "") parts.push({ text, ...kind });
    });
  }
  const endsWithNewline = segments.at(-1)?.text.endsWith("\n") ?? false;
  if (endsWithNewline) lines.pop();
  for (let i = 0; i < lines.length; i++) lines[i] ??= [];
  const { first_byte: firstByte, next_byte: nextByte } = logs;
  return { firstByte, nextByte, firstLine: first.first_line, lines, endsWithNewline, used };
}
