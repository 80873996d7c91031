import { describe, expect, it } from "vitest";
import { stacksIn } from "./stacks-in";

const system = (text: string) => ({ stream: "system", text });

describe("stacks in a log", () => {
  it("are what stands between the lines of the worker, over segments", () => {
    const segments = [
      { stream: "stdout", text: "=== stacks of the program's threads: a program may print this\n" },
      system("asked\n=== stacks of the program's threads: No progress\nThread 1\n"),
      system('  File "job.py"\n=== end of stacks\nsent SIGKILL\n'),
    ];
    expect(stacksIn(segments)).toBe('Thread 1\n  File "job.py"');
  });

  it("are none where the worker wrote none", () => {
    expect(stacksIn([system("sent SIGKILL: CANCELLED\n")])).toBeNull();
  });
});
