import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useEffectEvent } from "react";
import { api, body } from "@/api/client";
import { sessionQuery } from "@/api/queries";
import { alertsBetween, type BrowserAlert, type SeenRun } from "@/lib/alerts/between";
import { keepListening, live } from "@/lib/live";

const NEWEST = 100;

/** Tells of one's own runs in alerts of the browser. Of all its tabs the one that holds the lock does so. */
export default function BrowserAlerts() {
  const { data: session } = useQuery(sessionQuery);
  const owner = session?.principal;
  const navigate = useNavigate();
  const open = useEffectEvent((run: string) => {
    window.focus();
    void navigate({ to: "/runs/$runId", params: { runId: run } });
  });
  useEffect(() => {
    if (!owner || !("locks" in navigator) || Notification.permission !== "granted") return;
    const leave = new AbortController();
    void navigator.locks
      .request("drumline-alerts", { signal: leave.signal }, () => follow(owner, leave.signal, open))
      .catch(() => undefined); // left before it was this tab's turn
    return () => leave.abort();
  }, [owner]);
  return null;
}

/** Until `signal`. The first look is what later ones are compared with. */
async function follow(owner: string, signal: AbortSignal, open: (run: string) => void): Promise<void> {
  const since = Date.now();
  let seen: ReadonlyMap<string, SeenRun> | undefined;
  let looking = false;
  let again = true;
  const look = async () => {
    again = true;
    if (looking) return;
    looking = true;
    while (again && !signal.aborted) {
      again = false;
      const runs = await newestRuns(owner, signal);
      if (!runs) break; // the next hint asks again
      if (seen) for (const alert of alertsBetween(seen, runs, since)) show(alert, open);
      seen = new Map([...(seen ?? []), ...runs.map((run) => [run.id, run] as const)].slice(-2 * NEWEST));
    }
    looking = false;
  };
  keepListening(true);
  const stop = live.subscribe("runs", () => void look());
  await look();
  await new Promise<void>((done) => signal.addEventListener("abort", () => done(), { once: true }));
  stop();
  keepListening(false);
}

async function newestRuns(owner: string, signal: AbortSignal): Promise<readonly SeenRun[] | undefined> {
  try {
    const query = { owner, limit: NEWEST };
    return (await body(api.GET("/api/v1/runs", { params: { query }, signal }))).items;
  } catch {
    return undefined;
  }
}

function show({ run, tag, title, text }: BrowserAlert, open: (run: string) => void): void {
  const shown = new Notification(title, { body: text, tag });
  shown.onclick = () => {
    shown.close();
    open(run);
  };
}
