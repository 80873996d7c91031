/** The lines of the stream `system` between which a worker writes what a program that hangs was doing. */
const HEADING = "=== stacks of the program's threads";
const ENDING = "=== end of stacks";

/** The newest stacks in a piece of output; `null` where there are none. */
export function stacksIn(segments: readonly { stream: string; text: string }[]): string | null {
  const system = segments.filter((segment) => segment.stream === "system");
  const text = system.map((segment) => segment.text).join("");
  const begin = text.lastIndexOf(HEADING);
  if (begin < 0) return null;
  const end = text.indexOf(ENDING, begin);
  return text.slice(text.indexOf("\n", begin) + 1, end < 0 ? undefined : end).trimEnd();
}
