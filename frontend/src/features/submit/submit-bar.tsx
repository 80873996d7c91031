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
        <Button disabled={blocked} onClick={onPlan}>
          Plan
        </Button>
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
