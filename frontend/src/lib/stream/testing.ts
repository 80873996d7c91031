/** Stands in for the browser in tests of the stream. */
import type { StreamHost } from "./connection";
import type { LiveEvent } from "./messages";

class FakeSource extends EventTarget {
  closed = false;
  constructor(readonly url: string) {
    super();
  }
  close() {
    this.closed = true;
  }
  say(name: string, data?: unknown) {
    this.dispatchEvent(
      data === undefined ? new Event(name) : new MessageEvent(name, { data: JSON.stringify(data) }),
    );
  }
  get query(): URLSearchParams {
    return new URL(this.url, "http://drumline.test").searchParams;
  }
}

/** A host whose time stands still until it is moved. */
export class FakeHost implements StreamHost {
  sources: FakeSource[] = [];
  time = 0;
  answers = true;
  probes = 0;
  #timers: { at: number; run: () => void }[] = [];
  open(url: string): EventSource {
    const source = new FakeSource(url);
    this.sources.push(source);
    return source as unknown as EventSource;
  }
  probe() {
    this.probes += 1;
    return Promise.resolve(this.answers);
  }
  now() {
    return this.time;
  }
  after = (ms: number, run: () => void) => {
    const timer = { at: this.time + ms, run };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  };
  advance(ms: number) {
    const until = this.time + ms;
    for (;;) {
      const due = this.#timers.filter(({ at }) => at <= until).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.#timers = this.#timers.filter((timer) => timer !== due);
      this.time = Math.max(this.time, due.at);
      due.run();
    }
    this.time = until;
  }
  /** Like `advance`, a second at a time, with room for what was probed. */
  async pass(ms: number) {
    for (let at = 0; at < ms; at += 1_000) {
      this.advance(Math.min(1_000, ms - at));
      await Promise.resolve();
      await Promise.resolve();
    }
  }
  get source(): FakeSource {
    const last = this.sources.at(-1);
    if (!last) throw new Error("nothing was opened");
    return last;
  }
}

export const event = (seq: number, run = "run_a"): LiveEvent => ({
  run,
  seq,
  at: "2026-11-20T12:00:00Z",
  kind: "progress",
  body: {},
});
