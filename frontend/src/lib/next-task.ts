/** Continues in a task of its own: a task that is short keeps no press waiting. */
export function nextTask(): Promise<void> {
  return new Promise((next) => setTimeout(next));
}

/** A page that is always busy gets to it all the same. */
const LATEST_MS = 300;

/** Continues when the browser has nothing else to do, such as to draw what a page is opened for. */
export function idle(): Promise<void> {
  return new Promise((next) => {
    if ("requestIdleCallback" in window) window.requestIdleCallback(() => next(), { timeout: LATEST_MS });
    else setTimeout(next);
  });
}
