import type { LinkProps } from "@tanstack/react-router";
import { Link, useLocation } from "@tanstack/react-router";
import { useEffect, useRef } from "react";

export interface Tab {
  label: string;
  link: LinkProps;
  /** A small number after the label. */
  count?: number;
}

/** Tabs that are addresses: each is a link, so that it can be shared, opened beside and gone back from. */
export function TabNav({ label, tabs }: { label: string; tabs: readonly Tab[] }) {
  const nav = useRef<HTMLElement>(null);
  const path = useLocation({ select: ({ pathname }) => pathname });
  // biome-ignore lint/correctness/useExhaustiveDependencies: the tab that is open changes with the path
  useEffect(() => {
    const node = nav.current;
    const open = node?.querySelector<HTMLElement>("[aria-current=page]");
    if (!node || !open) return;
    // Once the page is laid out: to ask for places before that lays it out once more.
    const observer = new ResizeObserver(() => {
      node.scrollLeft = open.offsetLeft - (node.clientWidth - open.offsetWidth) / 2;
      observer.disconnect();
    });
    observer.observe(open);
    return () => observer.disconnect();
  }, [path]);
  return (
    <nav aria-label={label} className="relative flex gap-5 overflow-x-auto border-line border-b" ref={nav}>
      {tabs.map((tab) => (
        <Link
          {...tab.link}
          activeProps={{ "aria-current": "page" }}
          className="-mb-px flex h-9 shrink-0 items-center gap-1.5 border-transparent border-b-2 text-muted hover:text-text aria-[current=page]:border-accent aria-[current=page]:text-text"
          key={tab.label}
        >
          {tab.label}
          {tab.count !== undefined && <span className="text-2xs text-muted">{tab.count}</span>}
        </Link>
      ))}
    </nav>
  );
}
