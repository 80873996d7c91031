import { type ReactNode, useLayoutEffect, useRef, useState } from "react";
import { useSize } from "@/components/charts/use-size";
import { classNames } from "@/lib/class-names";

/** A box that scrolls sideways where its content is too wide; only then the keyboard stops at it. */
export function ScrollBox({ className, children }: { className?: string; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  useSize(box);
  // After each rendering: what is inside has changed, or the box's size has.
  useLayoutEffect(() => {
    const node = box.current;
    setScrolls(node !== null && node.scrollWidth > node.clientWidth);
  });
  return (
    <div className={classNames("overflow-x-auto", className)} ref={box} tabIndex={scrolls ? 0 : undefined}>
      {children}
    </div>
  );
}
