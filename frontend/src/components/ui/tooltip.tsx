import { Tooltip as Base } from "@base-ui/react/tooltip";
import type { ReactElement, ReactNode } from "react";
import { popupContainer } from "./page-portal";

/** A short text that appears beside `children` on hover and focus. It repeats or adds, and never carries the only name. */
export function Tooltip({
  text,
  side = "top",
  children,
}: {
  text: ReactNode;
  side?: "top" | "right" | "bottom" | "left";
  children: ReactElement<Record<string, unknown>>;
}) {
  return (
    <Base.Root>
      <Base.Trigger delay={350} render={children} />
      <Base.Portal container={popupContainer()}>
        <Base.Positioner className="z-50" side={side} sideOffset={6}>
          <Base.Popup className="max-w-xs rounded-control border border-line-strong bg-surface px-2 py-1 text-xs">
            {text}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
