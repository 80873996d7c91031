import { Icon } from "@/components/ui/icons";
import { toneClass } from "@/components/ui/state-badge";
import { classNames } from "@/lib/class-names";
import { formatInteger } from "@/lib/format";
import { live, useLiveStatus } from "@/lib/live";
import { useNow } from "@/lib/now";
import { useShortcut } from "@/lib/shortcuts";
import { POLL_MS } from "@/lib/stream/connection";
import type { LiveStatus } from "@/lib/stream/stream";

/** Whether what is on the page is the present: live, paused, polled, or stale with its age. A click pauses. */
export function LiveChip() {
  const status = useLiveStatus();
  const toggle = () => (status.paused ? live.resume() : live.pause());
  useShortcut({ keys: " ", meaning: "Pause or resume live updates", group: "View" }, (event) => {
    if (event.target instanceof HTMLElement && event.target.closest("button,summary")) event.target.click();
    else toggle();
  });
  if (status.phase === "idle" && !status.paused) return null;
  return (
    <button
      className="inline-flex h-7 items-center gap-1.5 rounded-control px-2 hover:bg-hover"
      onClick={toggle}
      title={status.paused ? "Resume live updates (space)" : "Pause live updates (space)"}
      type="button"
    >
      {status.paused ? <Paused waiting={status.waiting} /> : <Phase status={status} />}
    </button>
  );
}

function Paused({ waiting }: { waiting: number }) {
  return (
    <span className="inline-flex items-center gap-1.5 text-warn">
      <Icon name="pause" size={12} />
      Paused{waiting > 0 && <span className="text-muted">{formatInteger(waiting)} new</span>}
    </span>
  );
}

function Phase({ status }: { status: LiveStatus }) {
  const now = useNow();
  const age = status.freshAt === null ? null : Math.max(0, Math.round((now - status.freshAt) / 1000));
  const [word, tone, filled] = {
    idle: ["Idle", "idle", false] as const,
    connecting: ["Connecting", "idle", false] as const,
    live: ["Live", "ok", true] as const,
    stale: [age === null ? "No connection" : `Stale ${age} s`, "warn", false] as const,
    polling: [`Polling every ${POLL_MS / 1000} s`, "warn", false] as const,
  }[status.phase];
  return (
    <span className={classNames("inline-flex items-center gap-1.5", toneClass(tone))}>
      <svg aria-hidden="true" height="8" viewBox="0 0 8 8" width="8">
        <circle
          cx="4"
          cy="4"
          fill={filled ? "currentColor" : "none"}
          r="3"
          stroke="currentColor"
          strokeWidth="1.4"
        />
      </svg>
      {word}
    </span>
  );
}
