import type { Batch, RunState } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { PrincipalName } from "@/components/ui/principal-name";
import { StateIcon, stateWord } from "@/components/ui/state-badge";
import { count, formatInteger } from "@/lib/format";

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

/** How many runs of the batch are in which state, and how far its cancellation is. */
export function BatchStates({ batch }: { batch: Batch }) {
  const toCancel = batch.cancel?.left ?? 0;
  return (
    <span className="inline-flex flex-wrap items-center gap-x-4">
      {ORDER.filter((state) => batch.states[state]).map((state) => (
        <span className="inline-flex items-center gap-1.5" key={state}>
          <StateIcon state={state} />
          {formatInteger(batch.states[state] ?? 0)}{" "}
          <span className="text-muted lowercase">{stateWord(state)}</span>
        </span>
      ))}
      {batch.deleted > 0 && <span className="text-muted">{formatInteger(batch.deleted)} deleted</span>}
      {toCancel > 0 && (
        <span className="text-warn" role="status">
          being cancelled by <PrincipalName who={batch.cancel?.requested_by} />, {count(toCancel, "run")}{" "}
          still to be asked to stop
        </span>
      )}
    </span>
  );
}

/** Runs that have not ended, those that are still to be queued among them. */
export function liveRuns(batch: Batch): number {
  return Object.entries(batch.states).reduce(
    (left, [state, runs]) => (isTerminal(state as RunState) ? left - (runs ?? 0) : left),
    batch.size - batch.deleted,
  );
}
