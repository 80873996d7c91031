import { isApiError } from "@/api/errors";
import { Button } from "@/components/ui/button";
import { Keys } from "@/components/ui/keys";
import { Select } from "@/components/ui/select";
import { classNames } from "@/lib/class-names";
import { INPUT_CLASS } from "./field";

interface Planning {
  /** The slice that a plan is compiled for; empty: the devices where it would be placed. */
  on: string;
  onOn: (on: string) => void;
  /** The parameter whose largest value is looked for; empty: none. */
  largest: string;
  onLargest: (parameter: string) => void;
  /** Parameters that may be looked for. */
  choices: readonly string[];
  onPlan: () => void;
}

interface SubmitBarProps {
  blocked: boolean;
  busy: boolean;
  checking: boolean;
  invalid: boolean;
  error: unknown;
  /** null: a sweep is no one run that could be planned. */
  planning: Planning | null;
  onSubmit: (how: { anyway: boolean }) => void;
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
  planning,
  onSubmit,
  what,
}: SubmitBarProps) {
  return (
    <div className="sticky bottom-0 z-10 space-y-2 border-line border-t bg-bg px-4 py-2.5 lg:px-6">
      {invalid ? (
        <p className="text-bad" role="alert">
          Some fields need a look.
        </p>
      ) : (
        error !== null && <Refusal busy={busy} error={error} onAnyway={() => onSubmit({ anyway: true })} />
      )}
      <div className="flex flex-wrap items-center justify-end gap-x-4 gap-y-2">
        <span className="text-muted max-sm:hidden">
          {checking ? "checking the program" : <Keys keys="mod+Enter" />}
        </span>
        {planning && <PlanControls blocked={blocked} {...planning} />}
        <Button disabled={blocked} look="primary" onClick={() => onSubmit({ anyway: false })}>
          {busy ? "Submitting" : `Submit ${what}`}
        </Button>
      </div>
    </div>
  );
}

function PlanControls({
  blocked,
  on,
  largest,
  choices,
  onOn,
  onLargest,
  onPlan,
}: Planning & { blocked: boolean }) {
  return (
    <>
      {on.trim() !== "" && choices.length > 0 && (
        <Select
          choices={[
            { value: "", label: "with these values" },
            ...choices.map((name) => ({ value: name, label: `for the largest ${name}` })),
          ]}
          label="What to find out"
          onChange={onLargest}
          value={largest}
        />
      )}
      <input
        aria-label="Plan for a TPU slice or GPUs"
        className={classNames(INPUT_CLASS, "max-w-32 font-mono text-xs")}
        maxLength={32}
        onChange={(event) => onOn(event.target.value)}
        placeholder="e.g. v5e:4x4"
        spellCheck={false}
        title="Compile the plan for chips that need not be there, such as v5e:4x4 or h100:8"
        value={on}
      />
      <Button disabled={blocked} onClick={onPlan}>
        Plan
      </Button>
    </>
  );
}

function Refusal({ error, busy, onAnyway }: { error: unknown; busy: boolean; onAnyway: () => void }) {
  const problem = isApiError(error) ? error : null;
  const misfit = isApiError(error, "does_not_fit");
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-2" role="alert">
      <div className="min-w-0">
        <p className="break-words text-bad">{problem?.message ?? String(error)}</p>
        {misfit ? (
          <p className="text-muted">Make the batch or the model smaller, or try it all the same.</p>
        ) : (
          problem?.hint && <p className="text-muted">{problem.hint}</p>
        )}
      </div>
      {misfit && (
        <Button disabled={busy} look="danger" onClick={onAnyway}>
          Submit anyway
        </Button>
      )}
    </div>
  );
}
