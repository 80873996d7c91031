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

/** Of a group of charts all cursors move at once: so many tell their texts after a frame, the others later. */
const TOLD_AT_ONCE = 3;
/** Between one such frame and the next: nobody reads faster, and each costs layout and paint. */
const PAUSE_MS = 50;
const untold = new Set<CursorStore>();
let isTelling = false;

function tellSoon(store: CursorStore): void {
  // Who waits keeps its place, so that a pointer which never rests leaves nobody behind.
  untold.add(store);
  if (isTelling) return;
  isTelling = true;
  afterFrame(tellSome);
}

function tellSome(): void {
  isTelling = untold.size > 0;
  if (!isTelling) return;
  const own = (store: CursorStore) => (store.get()?.own ? 0 : 1);
  for (const store of [...untold].sort((a, b) => own(a) - own(b)).slice(0, TOLD_AT_ONCE)) {
    untold.delete(store);
    store.tell();
  }
  setTimeout(tellSome, PAUSE_MS);
}

export function useCursor(store: CursorStore): CursorPlace | null {
  return useSyncExternalStore(store.watch, store.get);
}
