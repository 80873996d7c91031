import { useSyncExternalStore } from "react";

/** Where the pointer or the keys are on a chart: an index into its x, and the line nearest to the pointer. */
interface CursorPlace {
  at: number;
  line: number | null;
  /** Under this chart's own pointer or keys, not those of a chart beside it. */
  own: boolean;
}

/** The place of a chart's cursor. Only what shows it is rendered when it moves, and not the chart. */
export class CursorStore {
  private place: CursorPlace | null = null;
  private readonly listeners = new Set<() => void>();

  readonly get = (): CursorPlace | null => this.place;

  set(place: CursorPlace | null): void {
    const old = this.place;
    if (old?.at === place?.at && old?.line === place?.line && old?.own === place?.own) return;
    this.place = place;
    for (const listener of this.listeners) listener();
  }

  readonly watch = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

export function useCursor(store: CursorStore): CursorPlace | null {
  return useSyncExternalStore(store.watch, store.get);
}
