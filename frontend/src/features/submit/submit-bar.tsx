import { isApiError } from "@/api/errors";
import { Button } from "@/components/ui/button";
import { Keys } from "@/components/ui/keys";

interface SubmitBarProps {
  blocked: boolean;
  busy: boolean;
  checking: boolean;
  invalid: boolean;
  error: unknown;
  /** null: a sweep is no one run that could be planned. */
  onPlan: (() => void) | null;
  /** The slice that a plan is compiled for; empty: the devices where it would be placed. */
  on: string;
  onOn: (on: string) => void;
  onSubmit: () => void;
  /** What would be submitted, such as `run` and `6 runs`. */
  what: string;
}

/** The one action of the page, always in reach, and the answer where it was refused. */
export function SubmitBar({
  blocked,
  busy,
  checking,
  invalid,
  error,
  onPlan,
  on,
  onOn,
  onSubmit,
  what,
}: SubmitBarProps) {
  return (
    <div className="sticky bottom-0 z-10 flex items-center gap-4 border-line border-t bg-bg px-4 py-2.5 lg:px-6">
      <div className="min-w-0 flex-1">
        {invalid ? (
          <p className="text-bad" role="alert">
            Some fields need a look.
          </p>
        ) : (
          error !== null && <Refusal error={error} />
        )}
      </div>
      <span className="text-muted max-sm:hidden">
        {checking ? "checking the program" : <Keys keys="mod+Enter" />}
      </span>
      {onPlan && (
        <>
          <input
            aria-label="Plan for a TPU slice"
            className="h-8 w-32 border border-line bg-bg px-2 font-mono text-xs max-sm:hidden"
            maxLength={32}
            onChange={(event) => onOn(event.target.value)}
            placeholder="such as v5e:4x4"
            title="Compile the plan for a TPU slice that need not be there"
            value={on}
          />
          <Button disabled={blocked} onClick={onPlan}>
            Plan
          </Button>
        </>
      )}
      <Button disabled={blocked} look="primary" onClick={onSubmit}>
        {busy ? "Submitting" : `Submit ${what}`}
      </Button>
    </div>
  );
}

function Refusal({ error }: { error: unknown }) {
  const problem = isApiError(error) ? error : null;
  return (
    <div role="alert">
      <p className="break-words text-bad">{problem?.message ?? String(error)}</p>
      {problem?.hint && <p className="text-muted">{problem.hint}</p>}
    </div>
  );
}
