import { beforeEach, describe, expect, it } from "vitest";
import { Connection } from "./connection";
import type { LiveMessage, Topic } from "./messages";
import { SharedConnection } from "./shared-connection";
import { LiveStream } from "./stream";
import { FORGET_MS, type FromTabHub, HEARTBEAT_MS, type Port, TabHub, type ToTabHub } from "./tab-hub";
import { event, FakeHost } from "./testing";

/** A browser with its hub, which can be lost with the process that ran it. */
class Browser {
  readonly tabs = new FakeHost();
  host = new FakeHost();
  hub = new TabHub(new Connection("/stream", this.host), this.host.after);

  constructor(readonly shares = true) {}

  connect(tab: Tab): Port<ToTabHub, FromTabHub> {
    const { hub } = this;
    const near: Port<ToTabHub, FromTabHub> = { onmessage: null, postMessage: () => {} };
    const far: Port<FromTabHub, ToTabHub> = { onmessage: null, postMessage: () => {} };
    const passes = () => this.hub === hub && !tab.crashed;
    near.postMessage = (data) =>
      passes() && far.onmessage?.({ data: structuredClone(data) } as MessageEvent<ToTabHub>);
    far.postMessage = (data) => passes() && near.onmessage?.({ data } as MessageEvent<FromTabHub>);
    if (this.shares) hub.join(far);
    return near;
  }

  lose() {
    this.host = new FakeHost();
    this.hub = new TabHub(new Connection("/stream", this.host), this.host.after);
  }

  async pass(ms: number) {
    await Promise.all([this.host.pass(ms), this.tabs.pass(ms)]);
  }

  /** The stream opens with what the tabs want now. */
  async open() {
    await Promise.resolve();
    this.host.advance(0);
    this.host.source.say("open");
  }
}

class Tab {
  heard: LiveMessage[] = [];
  crashed = false;
  /** The browser that a connection of its own is opened in. */
  readonly own = new FakeHost();
  readonly stream: LiveStream;

  constructor(browser: Browser) {
    this.stream = new LiveStream(
      new SharedConnection({
        open: () => browser.connect(this),
        own: () => new Connection("/stream", this.own),
        after: browser.tabs.after,
      }),
    );
  }

  listen(topic: Topic, from?: number) {
    return this.stream.subscribe(topic, (message) => this.heard.push(message), from);
  }

  get seqs(): number[] {
    return this.heard.flatMap((message) => (message.type === "event" ? [message.event.seq] : []));
  }
}

describe("tabs that share a connection", () => {
  let browser: Browser;
  beforeEach(() => {
    browser = new Browser();
  });

  it("open one connection for the topics of all", async () => {
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.listen("run:run_a", 3);
    two.listen("runs");
    two.listen("run:run_b", 8);
    await browser.open();
    expect(browser.host.sources).toHaveLength(1);
    expect(browser.host.source.query.get("topics")).toBe("run:run_a,run:run_b,runs");
    expect(browser.host.source.query.get("from")).toBe("run_a=3,run_b=8");
    browser.host.source.say("run", event(4));
    browser.host.source.say("run", event(9, "run_b"));
    expect([one.seqs, two.seqs]).toEqual([[4], [9]]);
    expect(one.stream.status().phase).toBe("live");
    expect(two.stream.status().phase).toBe("live");
  });

  it("continue when the first of them is closed", async () => {
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.listen("run:run_a", 0);
    two.listen("run:run_a", 0);
    await browser.open();
    one.stream.suspend();
    await Promise.resolve();
    browser.host.source.say("run", event(1));
    expect([one.seqs, two.seqs]).toEqual([[], [1]]);
    two.stream.suspend();
    await Promise.resolve();
    browser.host.advance(0);
    expect(browser.host.source.closed).toBe(true);
  });

  it("are forgotten when they crash", async () => {
    const one = new Tab(browser);
    one.listen("runs");
    await browser.open();
    one.crashed = true;
    await browser.pass(FORGET_MS + HEARTBEAT_MS);
    expect(browser.host.source.closed).toBe(true);
  });

  it("fetch again what was told before they listened", async () => {
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.listen("run:run_a", 3);
    await browser.open();
    browser.host.source.say("run", event(4));
    two.listen("run:run_a", 3);
    await Promise.resolve();
    browser.host.advance(0);
    expect(two.heard).toEqual([{ type: "resync", topic: "run:run_a" }]);
    expect(browser.host.sources).toHaveLength(1);
  });

  it("find a new hub where theirs is lost, and miss nothing", async () => {
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.listen("run:run_a", 0);
    one.listen("runs");
    two.listen("fleet");
    await browser.open();
    browser.host.source.say("run", event(1));
    browser.lose();
    await browser.pass(2 * HEARTBEAT_MS + 1_000);
    expect(browser.host.source.query.get("topics")).toBe("fleet,run:run_a,runs");
    expect(browser.host.source.query.get("from")).toBe("run_a=1");
    browser.host.source.say("open");
    browser.host.source.say("run", event(2));
    expect(one.seqs).toEqual([1, 2]);
    expect(one.heard).toContainEqual({ type: "resync", topic: "runs" });
    expect(two.heard).toContainEqual({ type: "resync", topic: "fleet" });
  });

  it("open a connection each where the hub never answers", async () => {
    browser = new Browser(false);
    const tab = new Tab(browser);
    tab.listen("run:run_a", 2);
    await Promise.resolve();
    await browser.pass(8_000);
    tab.own.advance(0);
    expect(tab.own.source.query.get("from")).toBe("run_a=2");
    tab.own.source.say("open");
    tab.own.source.say("run", event(3));
    expect(tab.seqs).toEqual([3]);
    expect(tab.stream.status().phase).toBe("live");
  });

  it("restart together when another is signed in", async () => {
    const [one, two] = [new Tab(browser), new Tab(browser)];
    one.listen("runs");
    two.listen("runs");
    await browser.open();
    one.stream.restart();
    expect(browser.host.source.closed).toBe(true);
    await browser.open();
    expect(browser.host.sources).toHaveLength(2);
    expect(two.heard).toEqual([{ type: "resync", topic: "runs" }]);
  });
});
