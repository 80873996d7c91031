/** What this browser is to tell of, as its person chose: one's own runs, and runs that are followed. All of its tabs know. */
import { useSyncExternalStore } from "react";

const STORAGE_KEY = "drumline.alerts";
const FOLLOWED_KEY = "drumline.followed";
/** Of more the one that was followed first is followed no longer. */
export const MOST_FOLLOWED = 50;
const RUN_ID = /^run_[0-9A-HJKMNP-TV-Z]{26}$/;

/** Whether this browser can tell of anything. */
export function canTell(): boolean {
  return "Notification" in window && "locks" in navigator && window.isSecureContext;
}

export function setBrowserAlerts(on: boolean): void {
  store(STORAGE_KEY, on ? "on" : null);
}

export function tellsOfOwn(): boolean {
  return stored(STORAGE_KEY) === "on";
}

export function useBrowserAlerts(): boolean {
  return useSyncExternalStore(watchChoice, tellsOfOwn);
}

/** Ids of the runs that are followed, the newest choice last. What somebody else wrote there counts for nothing. */
export function followedRuns(): string[] {
  const ids = (stored(FOLLOWED_KEY) ?? "").split(",").filter((id) => RUN_ID.test(id));
  return [...new Set(ids)].slice(-MOST_FOLLOWED);
}

export function followRun(id: string, on: boolean): void {
  const others = followedRuns().filter((other) => other !== id);
  const ids = (on ? [...others, id] : others).slice(-MOST_FOLLOWED);
  store(FOLLOWED_KEY, ids.join(",") || null);
}

export function useIsFollowed(id: string): boolean {
  return useSyncExternalStore(watchChoice, () => followedRuns().includes(id));
}

/** Whether there is anything that this browser is to tell of. */
export function useTellsOfAny(): boolean {
  return useSyncExternalStore(watchChoice, () => tellsOfOwn() || followedRuns().length > 0);
}

/** Hears of each change of the choice, in whichever tab. */
export function watchChoice(watcher: () => void): () => void {
  window.addEventListener("storage", watcher);
  return () => window.removeEventListener("storage", watcher);
}

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function store(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // Without storage nothing can be chosen.
  }
  window.dispatchEvent(new Event("storage")); // the browser tells the other tabs only
}
