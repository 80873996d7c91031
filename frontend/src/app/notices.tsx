import { useMatches, useRouterState } from "@tanstack/react-router";
import { useEffect, useEffectEvent } from "react";
import { IconButton } from "@/components/ui/button";
import { copyText } from "@/components/ui/copy-button";
import { Icon } from "@/components/ui/icons";
import { dismiss, notify, useNotices } from "@/lib/notices";
import { parseSearch } from "@/lib/search-params";
import { useShortcut } from "@/lib/shortcuts";

/** The messages of the moment. */
export function Notices() {
  useLostParameters();
  useShortcut({ keys: ".", meaning: "Copy a link to this view", group: "View" }, async () => {
    notify((await copyText(location.href)) ? "Link copied" : "The link could not be copied");
  });
  const notices = useNotices();
  return (
    <div aria-live="polite" className="fixed bottom-4 left-1/2 z-40 -translate-x-1/2 space-y-2" role="status">
      {notices.map(({ id, text }) => (
        <div
          className="notice-in flex items-center gap-2 rounded-panel border border-line-strong bg-surface py-1 pr-1 pl-3"
          key={id}
        >
          {text}
          <IconButton label="Dismiss" onClick={() => dismiss(id)}>
            <Icon name="close" size={12} />
          </IconButton>
        </div>
      ))}
    </div>
  );
}

/** As the page was opened: the router rewrites the address before anything is drawn. */
const arrivedWith = parseSearch(location.search);

/** An address may hold a value that its view does not know: the view falls back, and says so. */
function useLostParameters(): void {
  const resolved = useRouterState({ select: (state) => state.resolvedLocation !== undefined });
  const matches = useMatches();
  const report = useEffectEvent(() => {
    const understood = matches.at(-1)?.search as Record<string, unknown> | undefined;
    for (const [name, value] of Object.entries(arrivedWith)) {
      if (understood && name in understood && understood[name] === undefined) {
        notify(`${name}=${value} means nothing to this view and was left out`);
      }
    }
  });
  useEffect(() => {
    if (resolved) report();
  }, [resolved]);
}
