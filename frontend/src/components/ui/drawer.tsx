import { type ReactNode, useEffect, useEffectEvent, useRef } from "react";
import { IconButton } from "./button";
import { Icon } from "./icons";

/**
 * The inspector at the right: beside the page where there is room, over it where there is not. Not modal, so that the map or
 * table behind stays in use; Escape closes it from anywhere in it.
 */
export function Drawer({
  title,
  onClose,
  children,
}: {
  title: ReactNode;
  onClose: () => void;
  children: ReactNode;
}) {
  const panel = useRef<HTMLElement>(null);
  const close = useEffectEvent(onClose);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("[role=dialog]"))
        close();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return (
    <aside
      aria-label="Details"
      className="fixed inset-y-0 right-0 z-30 flex w-[min(340px,100vw)] flex-col overflow-y-auto border-line border-l bg-bg min-[1100px]:sticky min-[1100px]:top-11 min-[1100px]:z-0 min-[1100px]:h-[calc(100dvh-44px)] min-[1100px]:shrink-0"
      ref={panel}
    >
      <header className="sticky top-0 flex h-11 shrink-0 items-center gap-2 border-line border-b bg-bg pr-2 pl-4">
        <h2 className="min-w-0 flex-1 truncate">{title}</h2>
        <IconButton label="Close details" onClick={onClose}>
          <Icon name="close" />
        </IconButton>
      </header>
      <div className="p-4">{children}</div>
    </aside>
  );
}
