/** The tab's live stream as React hooks. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useEffectEvent, useSyncExternalStore } from "react";
import { browserHost, Connection, STREAM_URL } from "./stream/connection";
import type { LiveEvent } from "./stream/messages";
import { openSharedWorker } from "./stream/open-worker";
import { SharedConnection } from "./stream/shared-connection";
import { type LiveStatus, LiveStream } from "./stream/stream";

const HINT_PAUSE_MS = 400;
const HIDDEN_MS = 60_000;

export const live = new LiveStream(openConnection());

/** The line that all tabs share, where the browser has shared workers. */
function openConnection() {
  const host = browserHost();
  const own = () => new Connection(STREAM_URL, host);
  if (typeof SharedWorker === "undefined") return own();
  return new SharedConnection({ open: openSharedWorker, own, after: host.after });
}

export function useLiveStatus(): LiveStatus {
  return useSyncExternalStore(live.watch, live.status);
}

/** Fetches `queryKeys` again whenever the list behind `topic` changed; a burst of hints makes one fetch. */
export function useLiveList(topic: "runs" | "fleet", queryKeys: readonly (readonly unknown[])[]): void {
  const client = useQueryClient();
  const refresh = useEffectEvent(() => {
    for (const queryKey of queryKeys) void client.invalidateQueries({ queryKey });
  });
  useEffect(() => {
    let timer: number | undefined;
    const stop = live.subscribe(topic, () => {
      timer ??= window.setTimeout(() => {
        timer = undefined;
        refresh();
      }, HINT_PAUSE_MS);
    });
    return () => {
      window.clearTimeout(timer);
      stop();
    };
  }, [topic]);
}

/**
 * Hears each event of a run after `from` (`Run.last_event` of the answer on screen) once; `onResync` is called where events may
 * have been missed and everything of the run is to be fetched again. `from` undefined: not yet known, nothing is opened.
 */
export function useRunEvents(
  run: string,
  from: number | undefined,
  handlers: { onEvent: (event: LiveEvent) => void; onResync: () => void },
): void {
  const known = from !== undefined;
  const onEvent = useEffectEvent(handlers.onEvent);
  const onResync = useEffectEvent(handlers.onResync);
  const start = useEffectEvent(() => from);
  useEffect(() => {
    if (!known) return;
    return live.subscribe(
      `run:${run}`,
      (message) => {
        if (message.type === "event") onEvent(message.event);
        else onResync();
      },
      start(),
    );
  }, [run, known]);
}

let kept = false;

/** Keeps listening in a hidden tab too: it is the one that tells its person of runs. */
export function keepListening(on: boolean): void {
  kept = on;
  if (on) live.wake();
}

/** Listens to nothing while the tab is hidden for a minute or was left, and resumes when it is looked at again. */
export function watchVisibility(): () => void {
  let timer: number | undefined;
  const follow = () => {
    window.clearTimeout(timer);
    if (document.visibilityState === "hidden")
      timer = window.setTimeout(() => kept || live.suspend(), HIDDEN_MS);
    else live.wake();
  };
  const leave = () => live.suspend();
  document.addEventListener("visibilitychange", follow);
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", follow);
  return () => {
    window.clearTimeout(timer);
    window.removeEventListener("pagehide", leave);
    window.removeEventListener("pageshow", follow);
    document.removeEventListener("visibilitychange", follow);
  };
}
