import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useEffectEvent, useRef, useState } from "react";
import { keys } from "@/api/queries";
import type { Run, Straggler } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { useRunEvents } from "@/lib/live";
import type { LiveEvent } from "@/lib/stream/messages";
import { runKeys, type SteadyRun } from "./queries";

/** Which answers an event makes old, and how long a burst of such events is gathered before they are fetched again.
 *
 * `log` is not here: output is read on from its last byte instead of fetched again, by `logs/use-log.ts`.
 */
const CONSEQUENCES: Record<
  string,
  { keys: (id: string) => readonly (readonly unknown[])[]; pauseMs: number }
> = {
  state: { keys: (id) => [keys.run(id), runKeys.attempts(id), runKeys.placement(id)], pauseMs: 100 },
  attempt: { keys: (id) => [keys.run(id), runKeys.attempts(id), runKeys.placement(id)], pauseMs: 100 },
  /** A member that is made to wait, or continues, changes why its run waits. */
  member: { keys: (id) => [keys.run(id), runKeys.attempts(id)], pauseMs: 200 },
  placement: { keys: (id) => [runKeys.placement(id)], pauseMs: 100 },
  program: { keys: (id) => [runKeys.placement(id)], pauseMs: 500 },
  arrivals: { keys: (id) => [runKeys.arrivals(id)], pauseMs: 500 },
  variable: { keys: (id) => [runKeys.placement(id)], pauseMs: 500 },
  metrics: { keys: (id) => [runKeys.metrics(id)], pauseMs: 1_000 },
  reduction: { keys: (id) => [[...runKeys.reductions(id), "names"]], pauseMs: 500 },
  /** The first of an attempt rolls back what others recorded. */
  "first reduction": { keys: (id) => [runKeys.reductions(id)], pauseMs: 500 },
  media: { keys: (id) => [runKeys.media(id)], pauseMs: 1_000 },
  profile: {
    keys: (id) => [[...runKeys.profiles(id), "list"], runKeys.replicas(id)],
    pauseMs: 1_000,
  },
  artifact: { keys: (id) => [runKeys.artifacts(id)], pauseMs: 500 },
  summary: { keys: (id) => [keys.run(id)], pauseMs: 300 },
  non_finite: { keys: (id) => [keys.run(id)], pauseMs: 100 },
  checkpoint: { keys: (id) => [runKeys.checkpoints(id)], pauseMs: 300 },
  restored: { keys: (id) => [runKeys.checkpoints(id), runKeys.attempts(id)], pauseMs: 100 },
  gap: {
    keys: (id) => [runKeys.gaps(id), runKeys.metrics(id), [...runKeys.profiles(id), "list"]],
    pauseMs: 500,
  },
  result: { keys: (id) => [keys.run(id)], pauseMs: 100 },
  cancel: { keys: (id) => [keys.run(id)], pauseMs: 100 },
};

/** Answers that are gathered for so long belong to bulk telemetry, of which the next event is never far. */
const BULK_MS = 500;

/** Of clocks that differ a little. */
const JUST_NOW_MS = 60_000;

/** Keeps everything on screen about a run up to date. The end of a run renews it all once, so that every view settles. */
export function useLiveRun(run: SteadyRun): void {
  // The server closes a stream of ended runs only; the last event of a run comes after all its telemetry is stored.
  const [over, setOver] = useState(() => isTerminal(run.state));
  const client = useQueryClient();
  const timers = useRef(new Map<string, number>());
  const recording = useRef<LiveEvent["attempt"]>(null);
  useEffect(() => {
    const pending = timers.current;
    return () => {
      for (const timer of pending.values()) window.clearTimeout(timer);
      pending.clear();
    };
  }, []);
  const renew = useEffectEvent(() => {
    if (!isTerminal(run.state)) later(client, timers.current, run.id, "metrics");
    else if (Math.abs(Date.now() - Date.parse(run.ended_at ?? "")) < JUST_NOW_MS)
      void client.invalidateQueries({ queryKey: keys.run(run.id) });
  });
  // Curves are asked for together with the run: its news tell nothing of what came between both answers.
  useEffect(() => renew(), []);
  useRunEvents(run.id, over ? undefined : run.last_event, {
    onEvent: (event) => {
      if (event.kind === "progress" || event.kind === "arrivals") keepProgress(client, run.id, event);
      if (event.body.terminal === true) {
        setOver(true);
        void client.invalidateQueries({ queryKey: keys.run(run.id) });
      } else if (event.kind === "reduction" && event.attempt !== recording.current) {
        recording.current = event.attempt;
        later(client, timers.current, run.id, "first reduction");
      } else later(client, timers.current, run.id, event.kind);
    },
    onResync: () => void client.invalidateQueries({ queryKey: keys.run(run.id) }),
  });
}

function later(client: QueryClient, timers: Map<string, number>, id: string, kind: string): void {
  const consequence = CONSEQUENCES[kind];
  if (!consequence || timers.has(kind)) return;
  const fetchAgain = () => {
    timers.delete(kind);
    for (const queryKey of consequence.keys(id)) {
      // The run's own key is the root of all others: only itself is meant. A slow answer that keeps coming late is let through:
      // were it asked again for each event of a busy run, none would ever arrive; the end of the run renews all.
      void client.invalidateQueries(
        { queryKey, exact: queryKey.length === keys.run(id).length },
        { cancelRefetch: consequence.pauseMs < BULK_MS },
      );
    }
  };
  timers.set(kind, window.setTimeout(fetchAgain, consequence.pauseMs));
}

function keepProgress(client: QueryClient, id: string, event: LiveEvent): void {
  const progressOf = event.kind === "arrivals" ? withStraggler : withFigures;
  client.setQueryData<Run>(keys.run(id), (run) => run && { ...run, progress: progressOf(run, event) });
}

/** The server's own object as it is, of which the progress that is asked for holds the same. */
function throughputOf(told: unknown): Run["progress"]["throughput"] {
  return told !== null && typeof told === "object" ? told : null;
}

function withStraggler({ progress }: Run, { body }: LiveEvent): Run["progress"] {
  const told = body.straggler;
  return { ...progress, straggler: told !== null && typeof told === "object" ? (told as Straggler) : null };
}

function withFigures(run: Run, event: LiveEvent): Run["progress"] {
  const { progress } = run;
  const number = (name: "step" | "total_steps" | "steps_per_s" | "examples_per_s") => {
    const value = event.body[name];
    return typeof value === "number" ? value : (progress[name] ?? null);
  };
  return {
    ...progress,
    step: number("step"),
    total_steps: number("total_steps"),
    steps_per_s: number("steps_per_s"),
    examples_per_s: number("examples_per_s"),
    throughput: throughputOf(event.body.throughput) ?? progress.throughput ?? null,
    updated_at: event.at,
  };
}
