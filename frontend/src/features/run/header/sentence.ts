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
export function stateSentence(run: Run): string {
  if (run.reason) return run.reason.sentence;
  if (run.cancel_requested && run.state === "RUNNING") return MEANING.CANCELLING;
  return MEANING[run.state];
}
