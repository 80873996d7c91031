import { type ReactNode, useEffect, useRef, useState } from "react";
import { classNames } from "@/lib/class-names";

/**
 * A box that scrolls sideways where its content is too wide; only then the keyboard stops at it.
 *
 * What is placed absolutely inside, such as text for screen readers, scrolls with it.
 */
export function ScrollBox({ className, children }: { className?: string; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  useEffect(() => {
    const node = box.current;
    if (!node) return;
    // The observer tells once the page is laid out: to ask before that lays it out for each table.
    const measure = () => setScrolls(node.scrollWidth > node.clientWidth);
    const observer = new ResizeObserver(measure);
    observer.observe(node);
    // A font that arrives late, or a cell that rerenders by itself, widens the content and not the box.
    for (const child of node.children) observer.observe(child);
    return () => observer.disconnect();
  });
  return (
    <div
      className={classNames("relative overflow-x-auto", className)}
      ref={box}
      tabIndex={scrolls ? 0 : undefined}
    >
      {children}
    </div>
  );
}
