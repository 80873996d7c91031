import type { Batch, RunState } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { StateIcon, stateWord } from "@/components/ui/state-badge";

const ORDER: readonly RunState[] = [
  "FAILED",
  "SUCCEEDED",
  "RUNNING",
  "PLACED",
  "CANCELLING",
  "RETRY_WAIT",
  "QUEUED",
  "CANCELLED",
];

/** How many runs of the batch are in which state. */
export function BatchStates({ batch }: { batch: Batch }) {
  return (
    <span className="inline-flex flex-wrap items-center gap-x-4">
      {ORDER.filter((state) => batch.states[state]).map((state) => (
        <span className="inline-flex items-center gap-1.5" key={state}>
          <StateIcon state={state} />
          {batch.states[state]} <span className="text-muted lowercase">{stateWord(state)}</span>
        </span>
      ))}
    </span>
  );
}

export function liveRuns(batch: Batch): number {
  return Object.entries(batch.states).reduce(
    (sum, [state, runs]) => (isTerminal(state as RunState) ? sum : sum + (runs ?? 0)),
    0,
  );
}
