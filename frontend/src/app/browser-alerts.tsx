import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useEffectEvent } from "react";
import { api, body } from "@/api/client";
import { isApiError } from "@/api/errors";
import { sessionQuery } from "@/api/queries";
import type { Run } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { alertsBetween, type BrowserAlert, type SeenRun } from "@/lib/alerts/between";
import { followedRuns, followRun, tellsOfOwn, watchChoice } from "@/lib/alerts/choice";
import { keepListening, live } from "@/lib/live";

const NEWEST = 100;

/** Tells of one's own runs, and of those that are followed, in alerts of the browser. Of all its tabs the one that holds the lock does so. */
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

/** Until `signal`. The first look at a run is what later ones are compared with. */
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
      const runs = await watchedRuns(owner, signal);
      if (!runs) break; // the next hint asks again
      if (seen) for (const alert of alertsBetween(seen, runs, since)) show(alert, open);
      seen = new Map([...(seen ?? []), ...runs.map((run) => [run.id, run] as const)].slice(-3 * NEWEST));
    }
    looking = false;
  };
  keepListening(true);
  const stops = [live.subscribe("runs", () => void look()), watchChoice(() => void look())];
  await look();
  await new Promise<void>((done) => signal.addEventListener("abort", () => done(), { once: true }));
  for (const stop of stops) stop();
  keepListening(false);
}

/** One's own newest runs, if they are to be told of, and those that are followed. Undefined where the server does not answer. */
async function watchedRuns(owner: string, signal: AbortSignal): Promise<readonly SeenRun[] | undefined> {
  try {
    const [own, followed] = await Promise.all([
      tellsOfOwn() ? newestRuns(owner, signal) : [],
      followedNow(followedRuns(), signal),
    ]);
    // Of a run that is over there is nothing more to tell.
    for (const run of followed) if (isTerminal(run.state)) followRun(run.id, false);
    return [...new Map([...own, ...followed].map((run) => [run.id, run])).values()];
  } catch {
    return undefined;
  }
}

async function newestRuns(owner: string, signal: AbortSignal) {
  const query = { owner, limit: NEWEST };
  return (await body(api.GET("/api/v1/runs", { params: { query }, signal }))).items;
}

/** The runs that are followed. One that was deleted is asked for no more, which the others wait for once. */
async function followedNow(ids: readonly string[], signal: AbortSignal): Promise<readonly Run[]> {
  if (ids.length === 0) return [];
  const details = (runs: string[]) =>
    body(api.GET("/api/v1/runs:details", { params: { query: { runs } }, signal }));
  try {
    return (await details([...ids])).items;
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
  const found = await Promise.allSettled(ids.map((id) => details([id])));
  return found.flatMap((answer, at) => {
    if (answer.status === "fulfilled") return answer.value.items;
    if (isMissing(answer.reason)) followRun(ids[at] ?? "", false);
    return [];
  });
}

const isMissing = (error: unknown) => isApiError(error) && error.status === 404;

function show({ run, tag, title, text }: BrowserAlert, open: (run: string) => void): void {
  const shown = new Notification(title, { body: text, tag });
  shown.onclick = () => {
    shown.close();
    open(run);
  };
}
