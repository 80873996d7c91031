import { isApiError } from "@/api/errors";
import type { LogSearchPart } from "@/api/schema";
import { count, formatInteger } from "@/lib/format";

/** Lines with the text beyond these are not looked for: who wants more wants another text. */
export const MOST_HITS = 50_000;
const NOTHING: Progress = { bytes: 0, lines: 0 };

/** Asks the server for lines from `cursor` on, part by part, until `signal` ends it. */
export type AskServer = (cursor: string | undefined, signal: AbortSignal) => AsyncIterable<LogSearchPart>;

interface Progress {
  bytes: number;
  lines: number;
}

/** Looks for a text in all that a member has written, also in what is added later. The server looks. */
export class LogSearch {
  /** Numbers of the lines that hold the text, ascending. */
  hits: number[] = [];
  state: "searching" | "done" | "stopped" | "failed" | "refused" = "searching";
  /** Why the server does not look for it. */
  refusal = "";
  /** What was looked at by the requests before this one, and by this one. */
  private before = NOTHING;
  private now = NOTHING;
  private endByte = 0;
  private cursor: string | undefined;
  private request: AbortController | null = null;

  constructor(
    private readonly ask: AskServer,
    private readonly onChange: () => void,
    private readonly mostHits = MOST_HITS,
  ) {}

  /** More lines hold the text than are kept. */
  get full(): boolean {
    return this.hits.length >= this.mostHits;
  }

  get searchedBytes(): number {
    return this.before.bytes + this.now.bytes;
  }

  /** Ends of lines that were looked at. */
  get lines(): number {
    return this.before.lines + this.now.lines;
  }

  /** How much of what there is was looked at, from 0 to 1. */
  get share(): number {
    return Math.min(1, this.searchedBytes / Math.max(1, this.endByte));
  }

  /** Continues from where it stands to the end of what there is. */
  async run(): Promise<void> {
    if (this.request) return;
    const request = new AbortController();
    this.request = request;
    this.state = "searching";
    this.onChange();
    while (this.state === "searching" && !request.signal.aborted) await this.askOnce(request.signal);
    if (this.request !== request) return;
    this.request = null;
    this.onChange();
  }

  /** Output was added: looks at that too, unless someone stopped it. */
  grow(endByte: number): void {
    this.endByte = Math.max(this.endByte, endByte);
    if (this.state === "done" && !this.full && this.endByte > this.searchedBytes) void this.run();
  }

  stop(): void {
    if (this.state === "searching") this.state = "stopped";
    this.request?.abort();
  }

  /** Nobody looks at it any more. */
  close(): void {
    this.request?.abort();
    this.request = null;
  }

  private async askOnce(signal: AbortSignal): Promise<void> {
    this.before = { bytes: this.searchedBytes, lines: this.lines };
    this.now = NOTHING;
    let last: LogSearchPart["state"] = "searching";
    try {
      for await (const part of this.ask(this.cursor, signal)) {
        if (signal.aborted) return;
        this.take(part);
        last = part.state;
        this.onChange();
      }
    } catch (error) {
      if (signal.aborted) return;
      this.state = isApiError(error, "invalid_request") ? "refused" : "failed";
      if (isApiError(error)) this.refusal = error.message;
      return;
    }
    if (last === "searching") this.state = "failed";
    else if (last !== "paused") this.state = "done";
  }

  private take(part: LogSearchPart): void {
    this.now = { bytes: part.searched_bytes, lines: part.lines };
    this.endByte = Math.max(this.endByte, part.total_bytes);
    this.cursor = part.cursor || undefined;
    for (const hit of part.hits) {
      // The line without an end is looked at again when it has one, and so is what a cut-off answer told last.
      if (hit.line > (this.hits.at(-1) ?? 0)) this.hits.push(hit.line);
    }
  }
}

/** `3 of 17`, `17 so far, 40 % searched`, `not found in 1,204 lines`: never that nothing is there before all was looked at. */
export function foundText(search: LogSearch | null, at: number): string {
  if (!search) return "searching…";
  if (search.state === "refused") return search.refusal;
  const hits = `${formatInteger(search.hits.length)}${search.full ? "+" : ""}`;
  const place = at >= 0 ? `${formatInteger(at + 1)} of ${hits}` : hits;
  if (search.state === "done")
    return search.hits.length > 0 ? place : `not found in ${count(search.lines, "line")}`;
  const word = {
    searching: "searched",
    stopped: "searched, then stopped",
    failed: "searched, then it failed",
  };
  return `${search.hits.length > 0 ? place : "none"} so far, ${Math.floor(100 * search.share)} % ${word[search.state]}`;
}
