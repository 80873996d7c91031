import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { type RefObject, useImperativeHandle, useLayoutEffect } from "react";

/** Rows of a list that are in the document. */
export interface Shown {
  first: number;
  size: number;
}

interface RowWindowProps {
  count: number;
  /** Height of a row. */
  rowPx: number;
  body: RefObject<HTMLTableSectionElement | null>;
  onShown: (shown: Shown) => void;
  /** Is given what scrolls to a row by its place in the list. */
  reveal: RefObject<((index: number) => void) | null>;
}

/** Tells which rows of a long list are near the screen; draws nothing. */
export default function RowWindow({ count, rowPx, body, onShown, reveal }: RowWindowProps) {
  const virtual = useWindowVirtualizer({
    count,
    estimateSize: () => rowPx,
    overscan: 20,
    scrollMargin: body.current?.offsetTop ?? 0,
  });
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const size = items.length;
  // Before the paint, so that no frame shows the rows of the place before.
  useLayoutEffect(() => {
    if (size > 0) onShown({ first, size });
  }, [first, size, onShown]);
  useImperativeHandle(reveal, () => (index) => virtual.scrollToIndex(index), [virtual]);
  return null;
}
