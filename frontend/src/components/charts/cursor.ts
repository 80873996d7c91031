import { useSyncExternalStore } from "react";
import { afterFrame } from "@/lib/after-frame";

/** Where the pointer or the keys are on a chart: an index into its x, and the line nearest to the pointer. */
interface CursorPlace {
  at: number;
  line: number | null;
  /** Under this chart's own pointer or keys, not those of a chart beside it. */
  own: boolean;
}

/**
 * The place of a chart's cursor. Only what shows it is rendered when it moves, and not the chart; and that after the frame in
 * which it moved: cursors move without layout and paint, but texts do not.
 */
export class CursorStore {
  private place: CursorPlace | null = null;
  private readonly listeners = new Set<() => void>();

  readonly get = (): CursorPlace | null => this.place;

  set(place: CursorPlace | null): void {
    const old = this.place;
    if (old?.at === place?.at && old?.line === place?.line && old?.own === place?.own) return;
    this.place = place;
    tellSoon(this);
  }

  /** Renders what shows it. */
  tell(): void {
    for (const listener of this.listeners) listener();
  }

  readonly watch = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

/**
 * Of a group of charts all cursors move at once, but a frame has room for the text of one: the text is laid out and painted.
 * So long it is from one to the next.
 */
const PAUSE_MS = 30;
const untold = new Set<CursorStore>();
let isTelling = false;
let wasOwn = false;

function tellSoon(store: CursorStore): void {
  // Who waits keeps its place.
  untold.add(store);
  if (isTelling) return;
  isTelling = true;
  wasOwn = false;
  afterFrame(tellOne);
}

/** The text under the pointer in turns with the others, so that a pointer which never rests leaves nobody behind. */
function tellOne(): void {
  isTelling = untold.size > 0;
  if (!isTelling) return;
  const isOwn = (store: CursorStore) => store.get()?.own === true;
  const waiting = [...untold];
  const next = waiting.find((store) => isOwn(store) !== wasOwn) ?? waiting[0];
  if (next) {
    wasOwn = isOwn(next);
    untold.delete(next);
    next.tell();
  }
  setTimeout(tellOne, PAUSE_MS);
}

export function useCursor(store: CursorStore): CursorPlace | null {
  return useSyncExternalStore(store.watch, store.get);
}
