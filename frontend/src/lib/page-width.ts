import { useSyncExternalStore } from "react";

/** From which width of the window on the places at its left take so much, as `app/rail.tsx` says. */
const RAILS = [
  [1280, 200],
  [768, 48],
] as const;
/** Room on both sides of a page, and from which width on it has more. */
const [ROOM, WIDE_FROM, WIDE_ROOM] = [32, 1024, 48];

/**
 * The width that a page has for its content, in CSS pixels, but for a scroll bar. It is known before anything is laid out, so
 * that what depends on it can be asked for while the page's code is on the way.
 */
export function pageWidth(): number {
  const { innerWidth } = window;
  const [, rail] = RAILS.find(([from]) => innerWidth >= from) ?? [0, 0];
  return innerWidth - rail - (innerWidth >= WIDE_FROM ? WIDE_ROOM : ROOM);
}

function watch(listener: () => void): () => void {
  window.addEventListener("resize", listener);
  return () => window.removeEventListener("resize", listener);
}

export function usePageWidth(): number {
  return useSyncExternalStore(watch, pageWidth);
}
