import { useEffect, useMemo, useReducer } from "react";
import { isTerminal } from "@/api/states";
import { useRunEvents } from "@/lib/live";
import { fetchLogs, type SteadyRun } from "../queries";
import { LogLoader } from "./loader";

/** Events of one burst make one request. */
const PAUSE_MS = 150;

/** The output of one member, kept up to date. `revision` changes whenever there is something new to draw. */
export function useLog(run: SteadyRun, attempt: string | undefined, member: string | undefined) {
  const [revision, changed] = useReducer((n: number) => n + 1, 0);
  const loader = useMemo(
    () => new LogLoader((range) => fetchLogs(run.id, { ...range, attempt, member }), changed),
    [run.id, attempt, member],
  );
  useEffect(() => {
    loader.open();
    return () => loader.close();
  }, [loader]);
  const timer = useMemo(() => ({ id: undefined as number | undefined }), []);
  const soon = () => {
    timer.id ??= window.setTimeout(() => {
      timer.id = undefined;
      loader.refresh();
    }, PAUSE_MS);
  };
  useEffect(() => () => window.clearTimeout(timer.id), [timer]);
  useRunEvents(run.id, isTerminal(run.state) ? undefined : run.last_event, {
    onEvent: (event) => {
      if (event.kind === "log" || event.kind === "attempt" || event.body.terminal === true) soon();
    },
    onResync: soon,
  });
  // The run is fetched again at its end, which comes after its last output: that is the reason to look once more.
  // biome-ignore lint/correctness/useExhaustiveDependencies: a newer answer about the run is the reason
  useEffect(() => loader.refresh(), [loader, run.last_event]);
  return { loader, revision };
}
