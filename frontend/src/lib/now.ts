import { useSyncExternalStore } from "react";

/** One clock for all ages on the page: a tick a second, only while someone looks. */
const watchers = new Set<() => void>();
let now = Date.now();
let timer: number | undefined;

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  if (timer === undefined) {
    now = Date.now();
    timer = window.setInterval(tick, 1_000);
  }
  return () => {
    watchers.delete(watcher);
    if (watchers.size > 0) return;
    window.clearInterval(timer);
    timer = undefined;
  };
}

function tick(): void {
  if (document.visibilityState === "hidden") return;
  now = Date.now();
  for (const watcher of [...watchers]) watcher();
}

/** The present in milliseconds, renewed each second. */
export function useNow(): number {
  return useSyncExternalStore(watch, () => now);
}
