import { useState, useSyncExternalStore } from "react";

export type Ends = readonly [number, number];

/** Both ends of x of all that was ever drawn of a view: charts that come later must not move those that are there. */
export class DomainStore {
  private ends: Ends;
  private readonly listeners = new Set<() => void>();

  constructor(ends: Ends | null) {
    this.ends = ends ?? [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  }

  readonly get = (): Ends => this.ends;

  /** Widens it so that these places lie within. */
  cover(places: readonly (number | undefined)[]): void {
    let [low, high] = this.ends;
    for (const place of places) {
      if (place === undefined || !Number.isFinite(place)) continue;
      [low, high] = [Math.min(low, place), Math.max(high, place)];
    }
    if (low === this.ends[0] && high === this.ends[1]) return;
    this.ends = [low, high];
    for (const listener of this.listeners) listener();
  }

  readonly watch = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

/** The store of a view, a new one for each `key`, which begins with the ends that are known by then. */
export function useDomainStore(key: string, ends: Ends | null): DomainStore {
  const [held, hold] = useState(() => ({ key, store: new DomainStore(ends) }));
  if (held.key === key) return held.store;
  const next = { key, store: new DomainStore(ends) };
  hold(next);
  return next.store;
}

export function useEnds(store: DomainStore): Ends {
  return useSyncExternalStore(store.watch, store.get);
}

/** What is zoomed to, else everything there is; a span even where that is one place or none. */
export function domainWithin(ends: Ends, from: number | undefined, to: number | undefined): [number, number] {
  if (from !== undefined && to !== undefined && from < to) return [from, to];
  const [low, high] = ends;
  if (!(low <= high)) return [0, 1];
  return low < high ? [low, high] : [low - 0.5, high + 0.5];
}
