import { beforeEach, describe, expect, it } from "vitest";
import { Connection } from "./connection";
import type { LiveMessage, Topic } from "./messages";
import { event, FakeHost } from "./testing";

describe("Connection", () => {
  let host: FakeHost;
  let connection: Connection;
  let heard: LiveMessage[];
  const listen = (topic: Topic, from?: number) =>
    connection.subscribe(topic, (message) => heard.push(message), { from });
  const seqs = () => heard.flatMap((message) => (message.type === "event" ? [message.event.seq] : []));
  const connect = () => {
    host.advance(0);
    host.source.say("open");
  };
  beforeEach(() => {
    host = new FakeHost();
    connection = new Connection("/stream", host);
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
    expect(connection.status().phase).toBe("live");
  });

  it("closes the connection when nobody listens any more", () => {
    const stop = listen("runs");
    connect();
    stop();
    host.advance(0);
    expect(host.source.closed).toBe(true);
    expect(connection.status().phase).toBe("idle");
  });

  it("resumes after the last event seen and tells no event twice", () => {
    listen("run:run_a", 4);
    connect();
    host.source.say("run", event(5));
    host.source.say("run", event(6));
    host.source.say("error");
    expect(connection.status().phase).toBe("stale");
    host.advance(1_000);
    expect(host.source.query.get("from")).toBe("run_a=6");
    host.source.say("open");
    host.source.say("run", event(6));
    host.source.say("run", event(7));
    expect(seqs()).toEqual([5, 6, 7]);
  });

  it("asks lists to be fetched again after the connection was down, but not runs, which resume", () => {
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
    expect(connection.status().phase).toBe("stale");
    heard = [];
    await host.pass(5_000);
    expect(connection.status().phase).toBe("polling");
    expect(heard).toEqual([{ type: "resync", topic: "runs" }]);
    host.source.say("open");
    heard = [];
    await host.pass(9_000);
    expect(heard).toEqual([]);
  });

  it("stays stale and asks for nothing while the server does not answer", async () => {
    listen("runs");
    connect();
    const freshAt = connection.status().freshAt;
    host.answers = false;
    host.source.say("error");
    host.advance(1_000);
    host.source.say("error");
    heard = [];
    await host.pass(30_000);
    expect(connection.status()).toMatchObject({ phase: "stale", freshAt });
    expect(heard).toEqual([]);
  });

  it("notices a server that stopped answering though its connection stands", async () => {
    listen("runs");
    connect();
    await host.pass(10_000);
    expect(connection.status()).toMatchObject({ phase: "live", freshAt: 10_000 });
    host.answers = false;
    await host.pass(10_000);
    expect(connection.status().phase).toBe("stale");
  });

  it("gives a connection up that is never answered", async () => {
    listen("runs");
    host.advance(0);
    await host.pass(8_000);
    expect(host.sources[0]?.closed).toBe(true);
    expect(connection.status().phase).toBe("stale");
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

  it("tells a second listener that is behind to fetch again", () => {
    listen("run:run_a", 1);
    connect();
    host.source.say("run", event(2));
    heard = [];
    connection.subscribe("run:run_a", (message) => heard.push(message), { from: 1 });
    host.advance(0);
    expect(heard).toEqual([{ type: "resync", topic: "run:run_a" }]);
  });

  it("reopens a connection that was silent for a minute, as it may be half open", async () => {
    listen("runs");
    connect();
    await host.pass(60_000);
    host.advance(0);
    expect(host.sources).toHaveLength(2);
    expect(host.sources[0]?.closed).toBe(true);
    host.source.say("open");
    expect(heard).toEqual([{ type: "resync", topic: "runs" }]);
  });

  it("has a listener that was away fetch its list again, once the list is open", () => {
    listen("fleet");
    connect();
    connection.subscribe("runs", (message) => heard.push(message), { again: true });
    expect(heard).toEqual([]);
    connect();
    expect(heard).toEqual([
      { type: "resync", topic: "fleet" },
      { type: "resync", topic: "runs" },
    ]);
    heard = [];
    connection.subscribe("runs", (message) => heard.push(message), { again: true });
    host.advance(0);
    expect(heard).toEqual([{ type: "resync", topic: "runs" }]);
    expect(host.sources).toHaveLength(2);
  });

  it("starts over when another is signed in", () => {
    listen("run:run_a", 3);
    connect();
    connection.restart();
    expect(host.source.closed).toBe(true);
    host.advance(0);
    expect(host.sources).toHaveLength(2);
    expect(host.source.query.get("from")).toBe("run_a=3");
  });

  it("asks nothing of the server once nobody listens, even if it had to poll", async () => {
    const stop = listen("runs");
    connect();
    host.source.say("error");
    host.advance(1_000);
    host.source.say("error");
    stop();
    await host.pass(20_000);
    expect(connection.status().phase).toBe("idle");
    expect(host.probes).toBe(0);
  });
});
