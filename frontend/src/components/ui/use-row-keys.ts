import type { RefObject } from "react";
import { useShortcut } from "@/lib/shortcuts";

interface RowKeys {
  enabled: boolean;
  count: number;
  /** Brings a row into the document where only some are. */
  reveal: (index: number) => void;
}

/** `j` and `k` put the focus on the next and previous row's link; Enter then opens it as any link. */
export function useRowKeys(
  body: RefObject<HTMLTableSectionElement | null>,
  { enabled, count, reveal }: RowKeys,
): void {
  const move = (by: 1 | -1) => {
    if (count === 0) return;
    const row = document.activeElement?.closest("tr[data-index]");
    const current =
      row && body.current?.contains(row) ? Number(row.getAttribute("data-index")) : by === 1 ? -1 : count;
    const next = Math.min(count - 1, Math.max(0, current + by));
    // A row outside the window must be drawn before it can take the focus.
    if (!focusRow(body.current, next)) {
      reveal(next);
      requestAnimationFrame(() => focusRow(body.current, next));
    }
  };
  useShortcut({ keys: "j", meaning: "Next row", group: "List" }, () => move(1), enabled);
  useShortcut({ keys: "k", meaning: "Previous row", group: "List" }, () => move(-1), enabled);
}

function focusRow(body: HTMLTableSectionElement | null, index: number): boolean {
  const link = body?.querySelector<HTMLElement>(`tr[data-index="${index}"] :is(a,button)`);
  link?.focus({ preventScroll: true });
  link?.closest("tr")?.scrollIntoView({ block: "nearest" });
  return link !== null && link !== undefined;
}
