import { useEffect, useState } from "react";

/** What waits for the browser to have nothing else to do. One at a time, so that a press never waits for all of them. */
const waiting = new Set<() => void>();
/** A page that is always busy gets to it all the same. */
const LATEST_MS = 1_000;
/** A pointer that moved or pressed just now will move again: what nobody sees takes none of its frames until it has rested so long. */
const REST_MS = 1_000;
/** But for a pointer that never rests. */
const LONGEST_MS = 10_000;
let asked = false;
let movedAt = Number.NEGATIVE_INFINITY;
let waitsSince = 0;

if (typeof window !== "undefined")
  for (const act of ["pointermove", "pointerdown", "pointerup"])
    window.addEventListener(act, (event) => (movedAt = event.timeStamp), { capture: true, passive: true });

/** Runs `work` when the browser is idle; the function that it returns takes it back. */
function whenIdle(work: () => void): () => void {
  if (waiting.size === 0) waitsSince = performance.now();
  waiting.add(work);
  ask();
  return () => waiting.delete(work);
}

function ask(): void {
  if (asked) return;
  asked = true;
  if ("requestIdleCallback" in window) window.requestIdleCallback(runOne, { timeout: LATEST_MS });
  else setTimeout(runOne);
}

function askAgain(): void {
  asked = false;
  ask();
}

function runOne(): void {
  asked = false;
  const [work] = waiting;
  if (!work) return;
  const now = performance.now();
  const rest = movedAt + REST_MS - now;
  if (rest > 0 && now - waitsSince < LONGEST_MS) {
    asked = true;
    setTimeout(askAgain, rest);
    return;
  }
  waiting.delete(work);
  if (waiting.size > 0) ask();
  work();
}

/** `value` as it was when the browser last had nothing else to do; undefined before that. */
export function useWhenIdle<Value extends object>(value: Value): Value | undefined {
  const [held, hold] = useState<Value>();
  useEffect(() => whenIdle(() => hold(value)), [value]);
  return held;
}
