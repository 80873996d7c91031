import { type RefObject, startTransition, useEffect, useState } from "react";

/** Charts that are drawn at a time: each costs canvases, and its curve is kept up to date. */
const MOST_LIVE = 12;

interface Place {
  top: number;
  bottom: number;
}

/** Which of the places get to live: those in view first, then the nearest; none further away than a screen. */
export function chooseLive<Key>(places: ReadonlyMap<Key, Place>, height: number, most: number): Set<Key> {
  const away = ({ top, bottom }: Place) => (bottom < 0 ? -bottom : top > height ? top - height : 0);
  return new Set(
    [...places]
      .map(([key, place]) => ({ key, away: away(place), top: place.top }))
      .filter((one) => one.away <= height)
      .sort((a, b) => a.away - b.away || a.top - b.top)
      .slice(0, most)
      .map(({ key }) => key),
  );
}

const slots = new Map<HTMLElement, (live: boolean) => void>();
let frame = 0;
/** Places that were let live before anything was laid out. */
let promised = 0;

/** What stands over the charts of a page, and a row of them, in CSS pixels. */
const [HEAD_PX, ROW_PX] = [400, 240];

/** About so many charts are seen of a page that nobody has scrolled. */
export function inSight(width: number, height: number): number {
  const columns = width >= 1280 ? 3 : width >= 768 ? 2 : 1;
  return Math.min(MOST_LIVE, columns * Math.max(1, Math.round((height - HEAD_PX) / ROW_PX)));
}

/** The charts that are seen first live at once: to render the page without them and again with them takes a frame more. */
function livesAtOnce(): boolean {
  if (slots.size > 0 || promised >= inSight(window.innerWidth, window.innerHeight)) return false;
  promised += 1;
  return true;
}

function settle(): void {
  frame = 0;
  promised = 0;
  const places = new Map([...slots.keys()].map((node) => [node, node.getBoundingClientRect()] as const));
  const live = chooseLive(places, window.innerHeight, MOST_LIVE);
  // Those out of sight come to live a few milliseconds at a time: what is seen is drawn meanwhile.
  startTransition(() => {
    for (const [node, tell] of slots) if (!isSeen(places.get(node))) tell(live.has(node));
  });
  for (const [node, tell] of slots) if (isSeen(places.get(node))) tell(live.has(node));
}

function isSeen(place: Place | undefined): boolean {
  return place !== undefined && place.bottom >= 0 && place.top <= window.innerHeight;
}

function settleSoon(): void {
  if (frame === 0) frame = requestAnimationFrame(settle);
}

/** Whether the element's chart is to be drawn: it is in or near the window, and not too many others are nearer. */
export function useLiveSlot(element: RefObject<HTMLElement | null>): boolean {
  const [live, setLive] = useState(livesAtOnce);
  useEffect(() => {
    const node = element.current;
    if (!node) return;
    if (slots.size === 0) {
      window.addEventListener("scroll", settleSoon, { passive: true });
      window.addEventListener("resize", settleSoon);
    }
    slots.set(node, setLive);
    const observer = new ResizeObserver(settleSoon);
    observer.observe(document.body);
    settleSoon();
    return () => {
      slots.delete(node);
      observer.disconnect();
      settleSoon();
      if (slots.size > 0) return;
      window.removeEventListener("scroll", settleSoon);
      window.removeEventListener("resize", settleSoon);
    };
  }, [element]);
  return live;
}
