import { describe, expect, it } from "vitest";
import type { Logs } from "@/api/schema";
import { logsOf } from "../testing";
import type { FetchLogs } from "./loader";
import { foundText, LogSearch, SEARCH_BYTES } from "./search";

/** A server that answers with at most `most` bytes at once, whatever is asked for. */
function serverOf(text: string, most = SEARCH_BYTES) {
  const server = {
    text,
    member: "mem_1",
    asked: 0,
    fetch: (async ({ from, limit }) => {
      server.asked += 1;
      const answer = logsOf(server.text, from, from + Math.min(limit, most), { member: server.member });
      return answer.next_byte > from ? answer : { ...answer, segments: [], next_byte: from };
    }) as FetchLogs,
  };
  return server;
}

async function found(find: string, text: string, most?: number): Promise<number[]> {
  const search = new LogSearch(find, serverOf(text, most).fetch, () => undefined);
  await search.run();
  expect(search.state).toBe("done");
  return search.hits;
}

describe("LogSearch", () => {
  it("finds a line in the middle of a log of which only the end is loaded", async () => {
    const lines = Array.from({ length: 100_000 }, (_, i) => `line ${i + 1}\n`).join("");

    expect(await found("line 43210", lines)).toEqual([43210]);
    expect(await found("line 99999\u0000", lines)).toEqual([]);
  });

  it.each([1, 2, 3, 7])("finds text that is cut between answers of %d bytes", async (most) => {
    expect(await found("needle", "hay\nhay needle hay\nneedle\nhay", most)).toEqual([2, 3]);
  });

  it.each([
    ["colours", "error: lost", "\u001b[31merror\u001b[0m: lost\n"],
    ["case", "ERROR", "Error here\n"],
    ["characters of several bytes", "größe", "die GRÖSSE und Größe\n"],
    ["an accent of its own", "café", "cafe\u0301\n"],
    ["an emoji", "🚀", "go 🚀\n"],
    ["the end of a line of Windows", "done", "done\r\n"],
    ["what a progress bar wrote over", "20%", "10%\r20%\r30%\n"],
    ["signs of patterns", "a.*(b)[", "a.*(b)[c\n"],
    ["the last line without its end", "tail", "a tail"],
    ["spaces", "  two", "  two\n"],
  ])("finds %s", async (_what, find, text) => {
    expect(await found(find, `first\n${text}`, 5)).toEqual([2]);
  });

  it("counts a line once, and finds nothing across lines", async () => {
    expect(await found("aa", "aaaa aa\nb\naa\n")).toEqual([1, 3]);
    expect(await found("ab", "a\nb\n")).toEqual([]);
  });

  it("finds text at the end of one very long line", async () => {
    expect(await found("needle", `${"x".repeat(2_000_000)}needle\n`)).toEqual([1]);
  });

  it("numbers lines of interleaved streams as they are shown", async () => {
    const segment = (stream: "stdout" | "stderr", first_byte: number, first_line: number, text: string) => ({
      stream,
      at: "2026-01-01T00:00:00Z",
      first_byte,
      first_line,
      text,
    });
    const segments = [
      segment("stdout", 0, 1, "one\ntwo "),
      segment("stderr", 8, 2, "warning\n"),
      segment("stdout", 16, 3, "three"),
    ];
    const logs = { ...logsOf("x".repeat(21), 0, 21), segments, next_byte: 21, end_byte: 21 } satisfies Logs;
    const search = new LogSearch(
      "two warning",
      async () => logs,
      () => undefined,
    );
    await search.run();

    expect(search.hits).toEqual([2]);
  });

  it("continues with what is added, and starts over with another attempt", async () => {
    const server = serverOf("a\nneedle\n");
    const search = new LogSearch("needle", server.fetch, () => undefined);
    await search.run();
    server.text += "b\nneedle\n";
    search.grow(server.text.length);
    await expect.poll(() => search.hits).toEqual([2, 4]);

    server.text = "needle in another attempt, which has written more by now\n";
    server.member = "mem_2";
    search.grow(server.text.length);
    await expect.poll(() => search.hits).toEqual([1]);
  });

  it("says that it was stopped or failed, and where, instead of that nothing is there", async () => {
    const server = serverOf("hay\n".repeat(1_000), 100);
    const search = new LogSearch("needle", server.fetch, () => {
      if (search.searchedBytes >= 1_000) search.stop();
    });
    await search.run();
    expect(search.state).toBe("stopped");
    expect(search.searchedBytes).toBe(1_000);

    const failing = new LogSearch(
      "needle",
      () => Promise.reject(new Error("gone")),
      () => undefined,
    );
    await failing.run();
    expect(failing.state).toBe("failed");
  });

  it("keeps a bounded number of lines, and asks for no more then", async () => {
    const server = serverOf("hit\n".repeat(10_000), 1_000);
    const search = new LogSearch("hit", server.fetch, () => undefined, 300);
    await search.run();

    expect(search.full).toBe(true);
    expect(search.hits.length).toBeLessThan(600);
    expect(server.asked).toBeLessThan(4);
  });
});

describe("foundText", () => {
  it("says 'not found' only of a log that was searched to its end", async () => {
    const server = serverOf("hay\n".repeat(1_000), 1_000);
    const told: string[] = [];
    const search = new LogSearch("needle", server.fetch, () => told.push(foundText(search, -1)));
    await search.run();

    expect(told.at(-1)).toBe("not found in 1,000 lines");
    expect(told.slice(0, -1).filter((text) => text.includes("not found"))).toEqual([]);
    expect(told).toContain("none so far, 25 % searched");
  });

  it("tells the place among the lines found, and that there are more", async () => {
    const search = new LogSearch("hay", serverOf("hay\n".repeat(20)).fetch, () => undefined, 10);
    await search.run();

    expect(foundText(search, 2)).toBe("3 of 20+");
    expect(foundText(null, -1)).toBe("searching…");
  });
});
