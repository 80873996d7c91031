/** Short messages that come and go at the bottom of the page. */
import { useSyncExternalStore } from "react";

interface Notice {
  readonly id: number;
  readonly text: string;
}

const SHOWN_MS = 5_000;
const MOST = 3;
let notices: readonly Notice[] = [];
let last = 0;
const watchers = new Set<() => void>();

/** Shows `text` for five seconds. The same text is not shown twice at once. */
export function notify(text: string): void {
  if (notices.some((notice) => notice.text === text)) return;
  const id = ++last;
  change([...notices, { id, text }].slice(-MOST));
  window.setTimeout(() => dismiss(id), SHOWN_MS);
}

export function dismiss(id: number): void {
  change(notices.filter((notice) => notice.id !== id));
}

export function useNotices(): readonly Notice[] {
  return useSyncExternalStore(watch, () => notices);
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

function change(next: readonly Notice[]): void {
  notices = next;
  for (const watcher of [...watchers]) watcher();
}
