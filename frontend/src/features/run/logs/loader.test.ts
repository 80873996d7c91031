import { describe, expect, it, vi } from "vitest";
import { logsOf } from "../testing";
import { type FetchLogs, LogLoader } from "./loader";

const numbered = (lines: number) => Array.from({ length: lines }, (_, i) => `line ${i + 1}\n`).join("");

/** A server whose output can grow. */
function serverOf(text: string) {
  const server = {
    text,
    member: "mem_1",
    asked: 0,
    fetch: (async ({ from, limit }) => {
      server.asked += 1;
      const start = from < 0 ? Math.max(0, server.text.length + from) : from;
      const answer = logsOf(server.text, start, start + limit, { member: server.member });
      return answer.next_byte > start ? answer : { ...answer, segments: [] };
    }) as FetchLogs,
  };
  return server;
}

describe("LogLoader", () => {
  it("begins at the end, then loads the lines that are looked at", async () => {
    const server = serverOf(numbered(50_000));
    const loader = new LogLoader(server.fetch, () => undefined);

    await loader.load(0, -1);
    expect(loader.buffer.line(50_000)?.text).toBe("line 50000");
    expect(loader.buffer.line(20_000)).toBeNull();
    await loader.load(20_000, 20_030);

    expect(loader.buffer.line(20_000)).toMatchObject({ text: "line 20000", partial: false });
  });

  it("fetches only what was added when output grows", async () => {
    const server = serverOf("a\nb\n");
    const changed = vi.fn();
    const loader = new LogLoader(server.fetch, changed);
    await loader.load(0, -1);

    server.text += "c\n";
    loader.refresh();
    await loader.load(1, 3);

    expect(loader.buffer.line(3)?.text).toBe("c");
    expect(server.asked).toBe(2);
    expect(changed).toHaveBeenCalledTimes(2);
  });

  it("starts over when another attempt answers", async () => {
    const server = serverOf("old 1\nold 2\n");
    const loader = new LogLoader(server.fetch, () => undefined);
    await loader.load(0, -1);

    Object.assign(server, { text: "new 1\n", member: "mem_2" });
    loader.refresh();
    await loader.load(0, -1);

    expect(loader.buffer.lineCount).toBe(1);
    expect(loader.buffer.line(1)?.text).toBe("new 1");
  });

  it("keeps its lines and tells of the error when the server fails, and continues when asked again", async () => {
    const server = serverOf("a\n");
    let failing = false;
    const loader = new LogLoader(
      (range) => (failing ? Promise.reject(new Error("gone")) : server.fetch(range)),
      () => undefined,
    );
    await loader.load(0, -1);

    failing = true;
    server.text += "b\n";
    loader.refresh();
    await loader.load(1, 1);
    expect(loader.error).toBeInstanceOf(Error);
    expect(loader.buffer.line(1)?.text).toBe("a");

    failing = false;
    loader.refresh();
    await loader.load(1, 2);
    expect([loader.error, loader.buffer.line(2)?.text]).toEqual([null, "b"]);
  });

  it("serves a wish that comes at the very moment the last one is served", async () => {
    const server = serverOf(numbered(50_000));
    const loader: LogLoader = new LogLoader(server.fetch, () => {
      queueMicrotask(() => loader.show(100, 120));
    });

    await loader.load(0, -1);

    expect(loader.buffer.line(100)).toMatchObject({ text: "line 100", partial: false });
  });

  it("asks once for a log that is empty", async () => {
    const server = serverOf("");
    const loader = new LogLoader(server.fetch, () => undefined);

    await loader.load(1, 20);

    expect([server.asked, loader.started, loader.buffer.lineCount]).toEqual([1, true, 0]);
  });
});
