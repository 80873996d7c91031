import type { Logs } from "@/api/schema";
import { LogBuffer, PAGE_BYTES } from "./buffer";

/** Bytes from `from` on; a negative `from` counts from the end. */
export type FetchLogs = (range: { from: number; limit: number }) => Promise<Logs>;

/** Further behind than this, following jumps to the end and leaves a gap, which is loaded when someone looks at it. */
const MOST_BEHIND = 4 * PAGE_BYTES;

/** Loads what is looked at and what is new, one request at a time, the newest wish first. */
export class LogLoader {
  buffer = new LogBuffer();
  /** The first answer came. */
  started = false;
  error: unknown = null;
  /** Whose output this is; null before the first answer. */
  member: string | null = null;
  private tailWanted = false;
  private visible = { from: 0, to: -1 };
  private running: Promise<void> | null = null;
  private asked = false;
  private closed = false;

  constructor(
    private readonly fetchLogs: FetchLogs,
    private readonly onChange: () => void,
  ) {}

  /** Output was added: fetches what is missing at the end. */
  refresh(): void {
    this.tailWanted = true;
    void this.run();
  }

  /** Lines `from` to `to` are on screen. */
  show(from: number, to: number): void {
    this.visible = { from, to };
    void this.run();
  }

  /** Loads all of the lines `from` to `to`. */
  async load(from: number, to: number): Promise<void> {
    this.visible = { from, to };
    await this.run();
  }

  open(): void {
    this.closed = false;
  }

  /** Answers that are still on their way change nothing any more. */
  close(): void {
    this.closed = true;
  }

  private run(): Promise<void> {
    this.asked = true;
    this.running ??= this.drain();
    return this.running;
  }

  /** A wish may come between the last answer and the end of its promise: look once more before stopping. */
  private async drain(): Promise<void> {
    while (this.asked && !this.closed) {
      this.asked = false;
      await this.fetchAll();
    }
    this.running = null;
  }

  private async fetchAll(): Promise<void> {
    try {
      for (let wish = this.next(); wish && !this.closed; wish = this.next()) {
        const logs = await this.fetchLogs(wish);
        if (this.closed) return;
        const nothing = logs.segments.length === 0;
        this.take(logs);
        if (nothing && this.started && !this.tailWanted) return;
      }
    } catch (error) {
      this.error = error;
      if (!this.closed) this.onChange();
    }
  }

  private next(): { from: number; limit: number } | null {
    if (!this.started) return { from: -PAGE_BYTES, limit: PAGE_BYTES };
    if (this.tailWanted) {
      this.tailWanted = false;
      const behind = this.buffer.endByte - this.buffer.tailByte > MOST_BEHIND;
      return { from: behind ? -PAGE_BYTES : this.buffer.tailByte, limit: PAGE_BYTES };
    }
    return this.buffer.missing(this.visible.from, this.visible.to);
  }

  private take(logs: Logs): void {
    // Another attempt has begun and answers from now on: its output has its own bytes and lines.
    if (this.started && logs.member !== this.member) this.restart();
    else {
      const first = !this.started;
      this.started = true;
      this.member = logs.member;
      this.buffer.add(logs);
      const atTail = first || logs.next_byte > this.buffer.endByte - PAGE_BYTES;
      if (atTail && logs.next_byte < logs.end_byte && logs.segments.length > 0) this.tailWanted = true;
    }
    this.error = null;
    this.onChange();
  }

  private restart(): void {
    this.buffer = new LogBuffer();
    this.started = false;
    this.tailWanted = false;
    this.visible = { from: 0, to: -1 };
  }
}
