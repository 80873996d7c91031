import type { NonFinite, RunSummary } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { escapePieces } from "@/lib/escape";
import { formatInteger, secondsBetween } from "@/lib/format";

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

/**
 * `stands still`: its steps get no further; else `NaN at step 7`: the first reduction that was not finite; else what its
 * result holds that is no finite number.
 */
export function flawOf(
  run: Pick<RunSummary, "not_finite"> & Partial<Pick<RunSummary, "first_non_finite" | "stalled_at">>,
): string | null {
  if (run.stalled_at) return "stands still";
  const first = run.first_non_finite;
  return first ? `${kindOf(first)} at step ${formatInteger(first.step)}` : resultFlaw(run);
}

/** What went into a reduction first that is no finite number; an infinity alone may also be a sum that was too large. */
export function kindOf({ replicas }: NonFinite): "NaN" | "Infinity" {
  return replicas.some(({ nan_count }) => nan_count > 0) ? "NaN" : "Infinity";
}

/** `replica 3`, `replicas 0, 1, 2 and 5 more`. */
export function replicasOf({ replicas, replicas_in_all: all }: NonFinite): string {
  const shown = replicas.slice(0, MOST_REPLICAS_NAMED).map(({ replica }) => replica);
  const more = all - shown.length;
  return `${all === 1 ? "replica" : "replicas"} ${shown.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

const MOST_REPLICAS_NAMED = 4;

/** `NaN`, `NaN and Infinity`: what its result holds that is no finite number; null where it holds none. */
export function resultFlaw(run: Pick<RunSummary, "not_finite">): string | null {
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
  // A program's own words: characters that nobody sees, or that turn text around, are shown as their codes.
  return raised
    ? escapePieces(raised)
        .map((piece) => piece.text)
        .join("")
    : reason.sentence;
}
