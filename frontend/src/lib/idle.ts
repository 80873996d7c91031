/**
 * Two ways to wait until the browser has nothing else to do. A question to the server takes none of the page's time, and what it
 * asks for is seen: it goes with the first idle moment (`firstIdle`). Work that nobody looks at yet would hold up who moves or
 * presses next: it also waits for the pointer to rest, and each piece for an idle moment of its own (`useAtRest`).
 */
import { useEffect, useState } from "react";

/** A page that is always busy gets to it all the same: to a question, and to work. */
const LATEST_MS = { question: 300, work: 1_000 } as const;
/** One at a time, so that a press never waits for all of them. */
const waiting = new Set<() => void>();
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

/** Continues when the browser has first drawn what a page is opened for, or whatever else it was busy with. */
export function firstIdle(): Promise<void> {
  return new Promise((next) => onIdle(() => next(), LATEST_MS.question));
}

/** `value` as it was when the page was last at rest; undefined before that. */
export function useAtRest<Value extends object>(value: Value): Value | undefined {
  const [held, hold] = useState<Value>();
  useEffect(() => whenAtRest(() => hold(value)), [value]);
  return held;
}

function onIdle(run: () => void, latest: number): void {
  if ("requestIdleCallback" in window) window.requestIdleCallback(run, { timeout: latest });
  else setTimeout(run);
}

/** Runs `work` when the page is at rest; the function that it returns takes it back. */
function whenAtRest(work: () => void): () => void {
  if (waiting.size === 0) waitsSince = performance.now();
  waiting.add(work);
  ask();
  return () => waiting.delete(work);
}

function ask(): void {
  if (asked) return;
  asked = true;
  onIdle(runOne, LATEST_MS.work);
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
