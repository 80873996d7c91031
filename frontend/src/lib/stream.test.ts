import { beforeEach, describe, expect, it } from "vitest";
import { type LiveMessage, LiveStream, type StreamHost, type Topic } from "./stream";

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
class FakeHost implements StreamHost {
  sources: FakeSource[] = [];
  time = 0;
  answers = true;
  #timers: { at: number; run: () => void }[] = [];
  open(url: string): EventSource {
    const source = new FakeSource(url);
    this.sources.push(source);
    return source as unknown as EventSource;
  }
  probe() {
    return Promise.resolve(this.answers);
  }
  now() {
    return this.time;
  }
  after(ms: number, run: () => void) {
    const timer = { at: this.time + ms, run };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }
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

const event = (seq: number, run = "run_a") => ({
  run,
  seq,
  at: "2026-11-20T12:00:00Z",
  kind: "progress",
  body: {},
});

describe("LiveStream", () => {
  let host: FakeHost;
  let stream: LiveStream;
  let heard: LiveMessage[];
  const listen = (topic: Topic, from?: number) =>
    stream.subscribe(topic, (message) => heard.push(message), from);
  const seqs = () => heard.flatMap((message) => (message.type === "event" ? [message.event.seq] : []));
  const connect = () => {
    host.advance(0);
    host.source.say("open");
  };
  beforeEach(() => {
    host = new FakeHost();
    stream = new LiveStream("/stream", host);
    heard = [];
  });

  it("carries all topics over one connection", () => {
    listen("runs");
    listen("fleet");
    listen("run:run_a", 7);
    connect();
    expect(host.sources).toHaveLength(1);
    expect(host.source.query.get("topics")).toBe("fleet,run:run_a,runs");
    expect(host.source.query.get("from")).toBe("run_a=7");
    expect(stream.status().phase).toBe("live");
  });

  it("closes the connection when nobody listens any more", () => {
    const stop = listen("runs");
    connect();
    stop();
    host.advance(0);
    expect(host.source.closed).toBe(true);
    expect(stream.status().phase).toBe("idle");
  });

  it("resumes after the last event seen and tells no event twice", () => {
    listen("run:run_a", 4);
    connect();
    host.source.say("run", event(5));
    host.source.say("run", event(6));
    host.source.say("error");
    expect(stream.status().phase).toBe("stale");
    host.advance(1_000);
    expect(host.source.query.get("from")).toBe("run_a=6");
    host.source.say("open");
    host.source.say("run", event(6));
    host.source.say("run", event(7));
    expect(seqs()).toEqual([5, 6, 7]);
  });

  it("asks lists to be fetched again after the line was down, but not runs, which resume", () => {
    listen("runs");
    listen("run:run_a", 1);
    connect();
    host.source.say("error");
    host.advance(1_000);
    host.source.say("open");
    expect(heard).toEqual([{ type: "resync", topic: "runs" }]);
  });

  it("fetches only the lists again that were open before a change of topics", () => {
    listen("runs");
    connect();
    listen("fleet");
    connect();
    expect(host.sources).toHaveLength(2);
    expect(heard).toEqual([{ type: "resync", topic: "runs" }]);
  });

  it("ignores what an abandoned connection still says", () => {
    listen("run:run_a", 0);
    connect();
    const old = host.source;
    old.say("error");
    host.advance(1_000);
    old.say("run", event(1));
    expect(seqs()).toEqual([]);
  });

  it("polls from the second failure on, and stops when the stream is back", async () => {
    listen("runs");
    connect();
    host.source.say("error");
    host.advance(1_000);
    host.source.say("error");
    expect(stream.status().phase).toBe("stale");
    heard = [];
    await host.pass(5_000);
    expect(stream.status().phase).toBe("polling");
    expect(heard).toEqual([{ type: "resync", topic: "runs" }]);
    host.source.say("open");
    heard = [];
    await host.pass(9_000);
    expect(heard).toEqual([]);
  });

  it("stays stale and asks for nothing while the server does not answer", async () => {
    listen("runs");
    connect();
    const freshAt = stream.status().freshAt;
    host.answers = false;
    host.source.say("error");
    host.advance(1_000);
    host.source.say("error");
    heard = [];
    await host.pass(30_000);
    expect(stream.status()).toMatchObject({ phase: "stale", freshAt });
    expect(heard).toEqual([]);
  });

  it("notices a server that stopped answering though its connection stands", async () => {
    listen("runs");
    connect();
    await host.pass(10_000);
    expect(stream.status()).toMatchObject({ phase: "live", freshAt: 10_000 });
    host.answers = false;
    await host.pass(10_000);
    expect(stream.status().phase).toBe("stale");
  });

  it("gives a connection up that is never answered", async () => {
    listen("runs");
    host.advance(0);
    await host.pass(8_000);
    expect(host.sources[0]?.closed).toBe(true);
    expect(stream.status().phase).toBe("stale");
    await host.pass(1_000);
    expect(host.sources).toHaveLength(2);
  });

  it("drops its cursors when the server cannot replay, and says so to every listener", () => {
    listen("run:run_a", 3);
    connect();
    host.source.say("resync");
    expect(heard).toEqual([{ type: "resync", topic: "run:run_a" }]);
    host.advance(0);
    expect(host.source.query.get("from")).toBeNull();
  });

  it("holds messages back while paused and tells them in order on resume", () => {
    listen("run:run_a", 0);
    connect();
    stream.pause();
    host.source.say("run", event(1));
    host.source.say("run", event(2));
    expect(seqs()).toEqual([]);
    expect(stream.status().waiting).toBe(2);
    stream.resume();
    expect(seqs()).toEqual([1, 2]);
    expect(stream.status()).toMatchObject({ paused: false, waiting: 0 });
  });

  it("asks for everything again where a pause outgrew its buffer", () => {
    listen("run:run_a", 0);
    connect();
    stream.pause();
    for (let seq = 1; seq <= 5_001; seq++) host.source.say("run", event(seq));
    stream.resume();
    expect(heard).toEqual([{ type: "resync", topic: "run:run_a" }]);
  });

  it("tells a second listener that is behind to fetch again", () => {
    listen("run:run_a", 1);
    connect();
    host.source.say("run", event(2));
    heard = [];
    stream.subscribe("run:run_a", (message) => heard.push(message), 1);
    host.advance(0);
    expect(heard).toEqual([{ type: "resync", topic: "run:run_a" }]);
  });

  it("gives the connection up while hidden and resumes where it was", () => {
    listen("run:run_a", 0);
    connect();
    host.source.say("run", event(1));
    stream.suspend();
    expect(host.source.closed).toBe(true);
    host.advance(60_000);
    expect(host.sources).toHaveLength(1);
    stream.wake();
    host.advance(0);
    expect(host.source.query.get("from")).toBe("run_a=1");
  });

  it("opens a connection anew that was silent for a minute, as it may be half open", async () => {
    listen("runs");
    connect();
    await host.pass(60_000);
    host.advance(0);
    expect(host.sources).toHaveLength(2);
    expect(host.sources[0]?.closed).toBe(true);
    host.source.say("open");
    expect(heard).toEqual([{ type: "resync", topic: "runs" }]);
  });
});
