import type { Run, RunState } from "@/api/schema";

const MEANING: Record<RunState, string> = {
  QUEUED: "Waits for devices.",
  PLACED: "Has its devices; the workers are starting it.",
  RUNNING: "The program runs on all its replicas.",
  RETRY_WAIT: "Failed for a reason worth another attempt; waits before it.",
  CANCELLING: "Was asked to stop; the program has its grace period.",
  SUCCEEDED: "The program returned.",
  FAILED: "Ended without a result.",
  CANCELLED: "Was stopped on request.",
};

/** The state in a sentence: the typed reason where there is one, else what the state means. Why a run waits stands below it. */
export function stateSentence(
  run: Pick<Run, "state" | "reason" | "not_finite" | "cancel_requested" | "cancelled_by" | "stalled_at">,
): string {
  const odd = Object.entries(run.not_finite ?? {}).map(([name, value]) => `${name} is ${value}`);
  if (run.state === "SUCCEEDED" && odd.length > 0)
    return `The program returned a result that is not all finite numbers: ${listParts(odd)}.`;
  if (run.reason) return run.reason.sentence;
  const stopping = run.state === "CANCELLING" || (run.cancel_requested && run.state === "RUNNING");
  if (stopping && run.cancelled_by?.name)
    return `Was asked to stop by ${run.cancelled_by.name}; the program has its grace period.`;
  if (stopping) return MEANING.CANCELLING;
  if (run.stalled_at) return "The program runs, but its steps get no further.";
  return MEANING[run.state];
}

const MOST_NAMED = 4;

function listParts(parts: readonly string[]): string {
  const more = parts.length - MOST_NAMED;
  return `${parts.slice(0, MOST_NAMED).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
