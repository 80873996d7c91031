import { useRef, useState } from "react";

export interface Selection {
  ids: ReadonlySet<string>;
  /** All that match the filter, also those that are not loaded. */
  all: boolean;
  /** With shift held: all rows from the one before to this one become as this one. */
  toggle: (id: string, order: readonly string[], range: boolean) => void;
  toggleShown: (order: readonly string[]) => void;
  chooseAll: () => void;
  clear: () => void;
}

/** Which rows of a list are chosen. A row that leaves the list stays chosen until the choice is cleared. */
export function useSelection(): Selection {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(false);
  const last = useRef<string | null>(null);
  const change = (next: ReadonlySet<string>) => {
    setIds(next);
    setAll(false);
  };
  return {
    ids,
    all,
    toggle(id, order, range) {
      const next = new Set(ids);
      const on = !ids.has(id);
      for (const each of range ? between(order, last.current, id) : [id])
        on ? next.add(each) : next.delete(each);
      last.current = id;
      change(next);
    },
    toggleShown: (order) => change(order.every((id) => ids.has(id)) ? new Set() : new Set(order)),
    chooseAll: () => setAll(true),
    clear: () => change(new Set()),
  };
}

function between(order: readonly string[], from: string | null, to: string): readonly string[] {
  const first = from === null ? -1 : order.indexOf(from);
  const second = order.indexOf(to);
  return first < 0 ? [to] : order.slice(Math.min(first, second), Math.max(first, second) + 1);
}
