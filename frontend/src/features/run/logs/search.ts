import type { Logs } from "@/api/schema";
import { plainText } from "@/lib/ansi";
import { count, formatInteger } from "@/lib/format";
import type { FetchLogs } from "./loader";

/** Bytes of one request: few enough that the server is soon done with each. */
export const SEARCH_BYTES = 524_288;
/** Lines with the text beyond these are not looked for: who wants more wants another text. */
const MOST_HITS = 50_000;
/** Of a line without an end so much is kept, so that text across two answers is found. */
const KEPT_CHARACTERS = 65_536;

/** Looks for a text in all that a member has written, answer by answer, also in what is added later. */
export class LogSearch {
  /** Numbers of the lines that hold the text, ascending. */
  hits: number[] = [];
  /** Up to here everything was looked at. */
  searchedBytes = 0;
  endByte = 0;
  /** Lines looked at so far, whole ones. */
  lines = 0;
  state: "searching" | "done" | "stopped" | "failed" = "searching";
  private readonly wanted: string;
  private open = { number: 1, text: "", found: false };
  private member: string | null | undefined;
  private running = false;
  private closed = false;

  constructor(
    text: string,
    private readonly fetchLogs: FetchLogs,
    private readonly onChange: () => void,
    private readonly mostHits = MOST_HITS,
  ) {
    this.wanted = foldCase(text);
  }

  /** More lines hold the text than are kept. */
  get full(): boolean {
    return this.hits.length >= this.mostHits;
  }

  /** Continues from where it stands to the end of what there is. */
  async run(): Promise<void> {
    if (this.running || this.closed) return;
    this.running = true;
    this.state = "searching";
    this.onChange();
    try {
      while (this.state === "searching") await this.next();
    } catch {
      this.state = "failed";
    }
    this.running = false;
    if (!this.closed) this.onChange();
  }

  /** Output was added: looks at that too, unless someone stopped it. */
  grow(endByte: number): void {
    this.endByte = Math.max(this.endByte, endByte);
    if (this.state === "done" && !this.full && this.endByte > this.searchedBytes) void this.run();
  }

  stop(): void {
    if (this.state === "searching") this.state = "stopped";
  }

  /** Nobody looks at it any more. */
  close(): void {
    this.closed = true;
    this.stop();
  }

  private async next(): Promise<void> {
    const logs = await this.fetchLogs({ from: this.searchedBytes, limit: SEARCH_BYTES });
    if (this.closed) return;
    if (this.member !== undefined && logs.member !== this.member) return this.restart(logs);
    this.member = logs.member;
    this.take(logs);
    this.endByte = Math.max(this.endByte, logs.end_byte);
    const advanced = logs.next_byte > this.searchedBytes && logs.segments.length > 0;
    this.searchedBytes = Math.max(this.searchedBytes, logs.next_byte);
    if (this.state !== "searching") return;
    if (this.full || !advanced || this.searchedBytes >= logs.end_byte) this.state = "done";
    else this.onChange();
  }

  /** Another attempt answers from now on: its output is looked at from its beginning. */
  private restart(logs: Logs): void {
    this.hits = [];
    this.member = logs.member;
    this.searchedBytes = this.lines = 0;
    this.endByte = logs.end_byte;
    this.open = { number: 1, text: "", found: false };
  }

  private take(logs: Logs): void {
    for (const segment of [...logs.segments].sort((a, b) => a.first_byte - b.first_byte)) {
      if (segment.first_line !== this.open.number) this.begin(segment.first_line);
      segment.text.split("\n").forEach((part, i) => {
        if (i > 0) {
          this.lines += 1;
          this.begin(segment.first_line + i);
        }
        this.look(part);
      });
      if (this.full) return;
    }
  }

  private begin(number: number): void {
    this.open = { number, text: "", found: false };
  }

  private look(part: string): void {
    if (this.open.found || part === "") return;
    const text = this.open.text + part;
    if (this.isIn(text)) {
      this.open.found = true;
      this.hits.push(this.open.number);
    }
    this.open.text = this.open.found ? "" : text.slice(-KEPT_CHARACTERS);
  }

  /** As it is shown, without colours, or as it was written. */
  private isIn(text: string): boolean {
    return foldCase(plainText(text)).includes(this.wanted) || foldCase(text).includes(this.wanted);
  }
}

/** Upper and lower case, and the ways to write an accent, are the same. */
function foldCase(text: string): string {
  return text.normalize("NFC").toLowerCase();
}

/** `3 of 17`, `17 so far, 40 % searched`, `not found in 1,204 lines`: never that nothing is there before all was looked at. */
export function foundText(search: LogSearch | null, at: number): string {
  if (!search) return "searching…";
  const hits = `${formatInteger(search.hits.length)}${search.full ? "+" : ""}`;
  const place = at >= 0 ? `${formatInteger(at + 1)} of ${hits}` : hits;
  if (search.state === "done")
    return search.hits.length > 0 ? place : `not found in ${count(search.lines, "line")}`;
  const share = search.endByte > 0 ? Math.floor((100 * search.searchedBytes) / search.endByte) : 0;
  const word = {
    searching: "searched",
    stopped: "searched, then stopped",
    failed: "searched, then it failed",
  };
  return `${search.hits.length > 0 ? place : "none"} so far, ${share} % ${word[search.state]}`;
}
