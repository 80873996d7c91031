import type { RunState } from "./schema";

/** The run states after which nothing more happens. */
const TERMINAL_STATES: readonly RunState[] = ["SUCCEEDED", "FAILED", "CANCELLED"];

export function isTerminal(state: RunState): boolean {
  return TERMINAL_STATES.includes(state);
}
