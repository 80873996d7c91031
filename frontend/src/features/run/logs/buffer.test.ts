import { describe, expect, it } from "vitest";
import { logsOf, segment } from "../testing";
import { LogBuffer } from "./buffer";

const numbered = (lines: number) =>
  `${Array.from({ length: lines }, (_, i) => `line ${i + 1}`).join("\n")}\n`;

/** Asks as the viewer does until the lines are there; returns how many answers it took. */
function load(buffer: LogBuffer, whole: string, from: number, to: number): number {
  for (let asked = 0; asked < 50; asked++) {
    const wanted = buffer.missing(from, to);
    if (!wanted) return asked;
    buffer.add(logsOf(whole, wanted.from, wanted.from + wanted.limit));
  }
  throw new Error("the lines never came");
}

describe("LogBuffer", () => {
  it("joins a line that two pages share", () => {
    const whole = "first\nsecond half\nthird\n";
    const buffer = new LogBuffer();

    buffer.add(logsOf(whole, 0, 9));
    expect(buffer.line(2)).toMatchObject({ text: "sec", partial: true });
    buffer.add(logsOf(whole, 9, 100));

    expect(buffer.line(2)).toMatchObject({ text: "second half", partial: false });
    expect(buffer.line(1)).toMatchObject({ text: "first", partial: false });
    expect(buffer.lineCount).toBe(3);
  });

  it("marks a line that any part of came from stderr", () => {
    const buffer = new LogBuffer();
    const whole = "a\nbc\n";

    buffer.add({
      ...logsOf(whole, 0, 5),
      segments: [segment("a\nb", 0, 1), segment("c\n", 3, 2, { stream: "stderr" })],
    });

    expect(buffer.line(1)).toMatchObject({ text: "a", stderr: false });
    expect(buffer.line(2)).toMatchObject({ text: "bc", stderr: true });
  });

  it("shows where output is lost as a line of its own, and what comes after it in the lines that follow", () => {
    const buffer = new LogBuffer();
    const lost = segment("\n[drumline: 90 bytes of output lost here]\n", 3, 1, { gap: { size_bytes: 90 } });

    buffer.add({
      ...logsOf("", 0, 0),
      segments: [segment("one", 0, 1), { ...lost, stream: "system" }, segment("two\n", 93, 3)],
      first_byte: 0,
      next_byte: 97,
      end_byte: 97,
      lines: 3,
    });

    expect([1, 2, 3].map((number) => buffer.line(number)?.gap)).toEqual([false, true, false]);
    expect(buffer.line(2)).toMatchObject({
      text: "[drumline: 90 bytes of output lost here]",
      partial: false,
    });
    expect(buffer.line(3)).toMatchObject({ text: "two", partial: false });
    expect(buffer.missing(1, 3)).toBeNull();
  });

  it("counts the last line even before its newline comes, and lets it grow", () => {
    const buffer = new LogBuffer();

    buffer.add(logsOf("one\nstep 1\rst", 0, 100));
    expect(buffer.lineCount).toBe(2);
    expect(buffer.line(2)?.text).toBe("st");
    buffer.add(logsOf("one\nstep 1\rstep 2\nthree\n", 13, 100));

    expect(buffer.line(2)).toMatchObject({ text: "step 2", partial: false });
    expect(buffer.lineCount).toBe(3);
  });

  it("reaches any line of a long log in a few answers", () => {
    const whole = numbered(400_000);
    const buffer = new LogBuffer();
    buffer.add(logsOf(whole, whole.length - 65_536, whole.length));

    const asked = load(buffer, whole, 123_456, 123_500);

    expect(buffer.line(123_456)).toMatchObject({ text: "line 123456", partial: false });
    expect(asked).toBeLessThanOrEqual(6);
  });

  it("keeps the lines in use and no more than it may", () => {
    const whole = numbered(60_000);
    const buffer = new LogBuffer(20_000);
    buffer.add(logsOf(whole, 0, 65_536));

    for (let line = 1; line < 60_000; line += 2_000) load(buffer, whole, line, line + 50);

    const kept = whole.split("\n").filter((_, index) => buffer.line(index + 1) !== null);
    expect(kept.length).toBeLessThanOrEqual(20_000);
    expect(buffer.line(58_001)?.text).toBe("line 58001");
    expect(buffer.line(1)).toBeNull();
  });

  it("asks for nothing when everything is there or there is nothing", () => {
    const buffer = new LogBuffer();
    expect(buffer.missing(1, 50)).toBeNull();
    buffer.add(logsOf("a\nb\n", 0, 4));
    expect(buffer.missing(1, 50)).toBeNull();
    expect(buffer.tailByte).toBe(4);
  });

  it("takes an empty answer as news about the end only", () => {
    const buffer = new LogBuffer();
    buffer.add({ ...logsOf("", 0, 0), segments: [], complete: true });
    expect([buffer.lineCount, buffer.complete]).toEqual([0, true]);
  });
});
