import { Dialog as Base } from "@base-ui/react/dialog";
import type { ReactNode, RefObject } from "react";
import { classNames } from "@/lib/class-names";
import { Icon } from "./icons";

interface DialogProps {
  open: boolean;
  onClose: () => void;
  title: string;
  /** The title is read out but not drawn. */
  hideTitle?: boolean;
  className?: string;
  /** What has the focus first. `autoFocus` would take it before the dialog knows where to give it back. */
  initialFocus?: RefObject<HTMLElement | null>;
  children: ReactNode;
}

/** A modal dialog: focus inside, Escape closes, focus returns. */
export function Dialog({
  open,
  onClose,
  title,
  hideTitle = false,
  className,
  initialFocus,
  children,
}: DialogProps) {
  return (
    <Base.Root onOpenChange={(next) => !next && onClose()} open={open}>
      <Base.Portal>
        <Base.Backdrop className="fixed inset-0 z-40 bg-bg/70" />
        <Base.Popup
          initialFocus={initialFocus}
          className={classNames(
            "notice-in fixed top-[12vh] left-1/2 z-50 max-h-[76vh] w-[min(560px,calc(100vw-32px))] -translate-x-1/2 overflow-auto rounded-panel border border-line-strong bg-bg",
            className,
          )}
        >
          <div className={hideTitle ? "sr-only" : "flex h-11 items-center border-line border-b pr-2 pl-4"}>
            <Base.Title className="flex-1 font-strong">{title}</Base.Title>
            <Base.Close
              aria-label="Close"
              className="inline-flex size-7 items-center justify-center rounded-control text-muted hover:bg-hover"
            >
              <Icon name="close" />
            </Base.Close>
          </div>
          {children}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}
