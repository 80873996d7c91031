/** Whether this browser is to tell of one's runs, as its person chose; all of its tabs know. */
import { useSyncExternalStore } from "react";

const STORAGE_KEY = "drumline.alerts";

export function setBrowserAlerts(on: boolean): void {
  try {
    if (on) localStorage.setItem(STORAGE_KEY, "on");
    else localStorage.removeItem(STORAGE_KEY);
  } catch {
    // Without storage nothing can be chosen.
  }
  window.dispatchEvent(new Event("storage")); // the browser tells the other tabs only
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
  window.addEventListener("storage", watcher);
  return () => window.removeEventListener("storage", watcher);
}
