import type { RunSummary } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { secondsBetween } from "@/lib/format";

/** How long the run's program has run, in seconds; null where it never started. */
export function runningSeconds(run: RunSummary, now: number): number | null {
  if (!run.started_at) return null;
  return secondsBetween(run.started_at, isTerminal(run.state) ? run.ended_at : null, now);
}

/** Seconds until the last step at the present rate; null where either is unknown. */
export function secondsLeft(run: RunSummary): number | null {
  const { step, total_steps, steps_per_s } = run.progress;
  if (run.state !== "RUNNING" || step == null || !total_steps || !steps_per_s) return null;
  return Math.max(0, total_steps - step) / steps_per_s;
}

/** `NaN`, `NaN and Infinity`: what its result holds that is no finite number; null where it holds none. */
export function flawOf(run: Pick<RunSummary, "not_finite">): string | null {
  return [...new Set(Object.values(run.not_finite ?? {}))].sort().join(" and ") || null;
}

/** What a waiting run waits for, or why one did not succeed, in a few words; null for every other. */
export function becauseOf(run: Pick<RunSummary, "state" | "wait" | "reason">): string | null {
  if (run.wait) return run.wait.phrase;
  const failed = run.state === "FAILED" || (run.state === "CANCELLED" && run.reason?.code !== "CANCELLED");
  return (failed && run.reason && exceptionOf(run.reason)) || null;
}

/** What the program raised, by the last line of it; of every other end the sentence. */
function exceptionOf(
  reason: Pick<NonNullable<RunSummary["reason"]>, "code" | "sentence" | "message">,
): string {
  const raised = reason.code === "PROGRAM_ERROR" ? reason.message?.trim().split("\n").at(-1)?.trim() : "";
  return raised || reason.sentence;
}
