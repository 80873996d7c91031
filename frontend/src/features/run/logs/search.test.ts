import { describe, expect, it } from "vitest";
import { ApiError } from "@/api/errors";
import type { LogSearchPart } from "@/api/schema";
import { type AskServer, foundText, LogSearch } from "./search";

const DONE: LogSearchPart = {
  state: "done",
  hits: [],
  searched_bytes: 100,
  total_bytes: 100,
  lines: 10,
  cursor: "end",
};

function part(state: LogSearchPart["state"], lines: number[], changes: Partial<LogSearchPart> = {}) {
  const hits = lines.map((line) => ({
    member: "mem_1",
    rank: 0,
    line,
    first_byte: line,
    at: "2026-01-01T00:00:00Z",
    stream: "stdout" as const,
    text: "",
  }));
  return { ...DONE, state, hits, ...changes };
}

/** A server that gives one of `answers` after the other, and what it was asked for. */
function serverOf(...answers: (readonly LogSearchPart[] | Error)[]) {
  const asked: (string | undefined)[] = [];
  const ask: AskServer = async function* (cursor) {
    const answer = answers[asked.length] ?? [DONE];
    asked.push(cursor);
    if (answer instanceof Error) throw answer;
    yield* answer;
  };
  return { ask, asked };
}

describe("LogSearch", () => {
  it("takes what is found part by part", async () => {
    const server = serverOf([part("searching", [3, 7]), part("done", [12])]);
    const search = new LogSearch(server.ask, () => undefined);
    await search.run();

    expect(search.hits).toEqual([3, 7, 12]);
    expect(search.state).toBe("done");
    expect(server.asked).toEqual([undefined]);
  });

  it("continues where the server paused, and where an answer was cut off", async () => {
    const server = serverOf(
      [part("paused", [1], { cursor: "a", searched_bytes: 40, lines: 4 })],
      [part("searching", [2], { cursor: "b", searched_bytes: 30, lines: 3 })],
      [part("done", [2, 9], { searched_bytes: 30, lines: 3 })],
    );
    const search = new LogSearch(server.ask, () => undefined);
    await search.run();
    expect([search.state, search.hits]).toEqual(["failed", [1, 2]]);
    await search.run();

    expect([search.state, search.hits]).toEqual(["done", [1, 2, 9]]);
    expect([search.searchedBytes, search.lines]).toEqual([100, 10]);
    expect(server.asked).toEqual([undefined, "a", "b"]);
  });

  it("looks at what is added, each line once", async () => {
    const server = serverOf([part("done", [2])], [part("done", [2, 4], { searched_bytes: 20 })]);
    const search = new LogSearch(server.ask, () => undefined);
    await search.run();
    search.grow(100);
    expect(server.asked).toHaveLength(1);
    search.grow(120);
    await expect.poll(() => search.hits).toEqual([2, 4]);

    expect(server.asked).toEqual([undefined, "end"]);
  });

  it("says that it was stopped or failed, and where, instead of that nothing is there", async () => {
    const server = serverOf([part("searching", [], { searched_bytes: 40 }), part("done", [5])]);
    const search = new LogSearch(server.ask, () => {
      if (search.searchedBytes === 40) search.stop();
    });
    await search.run();
    expect([search.state, search.hits]).toEqual(["stopped", []]);
    expect(foundText(search, -1)).toBe("none so far, 40 % searched, then stopped");

    const failing = new LogSearch(serverOf(new Error("gone")).ask, () => undefined);
    await failing.run();
    expect(failing.state).toBe("failed");
  });

  it("tells why the server refuses an expression", async () => {
    const detail = "find: '(a' is no expression: missing )";
    const problem = { status: 422, code: "invalid_request", title: "Invalid", detail };
    const search = new LogSearch(serverOf(new ApiError(problem)).ask, () => undefined);
    await search.run();

    expect([search.state, foundText(search, -1)]).toEqual(["refused", detail]);
  });

  it("asks for no more than is kept", async () => {
    const server = serverOf([part("full", [1, 2, 3])]);
    const search = new LogSearch(server.ask, () => undefined, 3);
    await search.run();
    search.grow(1_000);

    expect([search.full, server.asked.length]).toEqual([true, 1]);
    expect(foundText(search, 1)).toBe("2 of 3+");
  });
});

describe("foundText", () => {
  it("says 'not found' only of a log that was searched to its end", async () => {
    const told: string[] = [];
    const server = serverOf([
      part("searching", [], { searched_bytes: 25 }),
      part("done", [], { lines: 1_000 }),
    ]);
    const search = new LogSearch(server.ask, () => told.push(foundText(search, -1)));
    await search.run();

    expect(told.at(-1)).toBe("not found in 1,000 lines");
    expect(told).toContain("none so far, 25 % searched");
    expect(told.slice(0, 2).filter((text) => text.includes("not found"))).toEqual([]);
    expect(foundText(null, -1)).toBe("searching…");
  });
});
