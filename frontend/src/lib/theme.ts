/** The colour theme: chosen by the person or following the system; drawings hear of a change by one event. */

import { useSyncExternalStore } from "react";

export type ThemeChoice = "light" | "dark" | "system";

const STORAGE_KEY = "drumline.theme";
const CHANGE_EVENT = "themechange";
const systemDark = () => window.matchMedia("(prefers-color-scheme: dark)");

export function themeChoice(): ThemeChoice {
  try {
    const stored = localStorage.getItem(STORAGE_KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    return "system";
  }
}

export function setThemeChoice(choice: ThemeChoice): void {
  try {
    localStorage.setItem(STORAGE_KEY, choice);
  } catch {
    // Without storage the choice holds for this page only.
  }
  apply(choice);
}

/** Keeps the page in step with the system's theme. Call once; src/start.js has set the first one. */
export function watchSystemTheme(): () => void {
  const query = systemDark();
  const follow = () => {
    if (themeChoice() === "system") apply("system");
  };
  query.addEventListener("change", follow);
  return () => query.removeEventListener("change", follow);
}

/** Calls `listener` after each change of theme; canvases read their tokens again and redraw. */
export function onThemeChange(listener: () => void): () => void {
  window.addEventListener(CHANGE_EVENT, listener);
  return () => window.removeEventListener(CHANGE_EVENT, listener);
}

/** The theme in force; renders again when it changes. */
export function useTheme(): string {
  return useSyncExternalStore(onThemeChange, () => document.documentElement.dataset.theme ?? "light");
}

const known = new Map<string, string>();

/** The present value of a design token such as `--line`, for drawing on a canvas. It depends on the theme only. */
export function token(name: `--${string}`): string {
  const key = `${document.documentElement.dataset.theme} ${name}`;
  const found = known.get(key);
  if (found) return found;
  // This makes the browser work out the styles of the whole page where anything on it has changed.
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  known.set(key, value);
  return value;
}

/** Asks for the fonts of the page before it is laid out: where they come later, all of it is laid out again. */
export function askForFonts(): void {
  for (const name of ["--font-ui", "--font-code"] as const)
    document.fonts.load(`1em ${token(name)}`).catch(() => undefined);
}

function apply(choice: ThemeChoice): void {
  const theme = choice === "system" ? (systemDark().matches ? "dark" : "light") : choice;
  if (document.documentElement.dataset.theme === theme) return;
  document.documentElement.dataset.theme = theme;
  window.dispatchEvent(new Event(CHANGE_EVENT));
}
