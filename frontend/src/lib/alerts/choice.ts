/** Whether this browser is to tell of one's runs, as its person chose; all of its tabs know. */
import { useSyncExternalStore } from "react";

const STORAGE_KEY = "drumline.alerts";
const watchers = new Set<() => void>();

export function setBrowserAlerts(on: boolean): void {
  try {
    if (on) localStorage.setItem(STORAGE_KEY, "on");
    else localStorage.removeItem(STORAGE_KEY);
  } catch {
    // Without storage nothing can be chosen.
  }
  for (const watcher of [...watchers]) watcher();
}

export function useBrowserAlerts(): boolean {
  return useSyncExternalStore(watch, read);
}

function read(): boolean {
  try {
    return localStorage.getItem(STORAGE_KEY) === "on";
  } catch {
    return false;
  }
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  window.addEventListener("storage", watcher);
  return () => {
    watchers.delete(watcher);
    window.removeEventListener("storage", watcher);
  };
}
