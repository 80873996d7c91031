import { beforeEach, describe, expect, it } from "vitest";
import { Connection } from "./connection";
import type { LiveMessage, Topic } from "./messages";
import { LiveStream } from "./stream";
import { event, FakeHost } from "./testing";

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
    stream = new LiveStream(new Connection("/stream", host));
    heard = [];
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

  it("tells a second listener that is behind to fetch again", async () => {
    listen("run:run_a", 1);
    connect();
    host.source.say("run", event(2));
    heard = [];
    listen("run:run_a", 1);
    await Promise.resolve();
    expect(heard).toEqual([{ type: "resync", topic: "run:run_a" }]);
  });

  it("gives the connection up while hidden and resumes where it was", () => {
    listen("run:run_a", 0);
    listen("runs");
    connect();
    host.source.say("run", event(1));
    stream.suspend();
    host.advance(60_000);
    expect(host.source.closed).toBe(true);
    expect(host.sources).toHaveLength(1);
    heard = [];
    stream.wake();
    host.advance(0);
    expect(host.source.query.get("from")).toBe("run_a=1");
    host.source.say("open");
    expect(heard).toEqual([{ type: "resync", topic: "runs" }]);
  });

  it("tells an event once that its connection tells twice", () => {
    listen("run:run_a", 4);
    connect();
    for (const seq of [3, 4, 5, 5, 6]) host.source.say("run", event(seq));
    expect(seqs()).toEqual([5, 6]);
  });
});
