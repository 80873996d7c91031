import type { Draft } from "./draft";
import { Field, INPUT_CLASS } from "./field";

interface OptionFieldsProps {
  draft: Draft;
  errorOf: (field: string) => string | undefined;
  change: (part: Partial<Draft>) => void;
}

const FIELDS: readonly { key: keyof Draft & OptionKey; field: string; label: string; hint: string }[] = [
  { key: "runLimit", field: "limits.run_s", label: "Run limit, s", hint: "empty: runs as long as it takes" },
  {
    key: "stepLimit",
    field: "limits.step_s",
    label: "Step limit, s",
    hint: "from one step to the next; empty: 10 usual steps, at least 60",
  },
  {
    key: "firstStepLimit",
    field: "limits.first_step_s",
    label: "First step limit, s",
    hint: "empty: 900 in which nothing is computed",
  },
  {
    key: "queueLimit",
    field: "limits.queue_s",
    label: "Queue limit, s",
    hint: "empty: waits as long as it takes",
  },
  { key: "grace", field: "limits.grace_s", label: "Grace, s", hint: "to save and return after a cancel" },
  { key: "userRetries", field: "retries.user", label: "Retries", hint: "after an error of the program" },
  { key: "priority", field: "priority", label: "Priority", hint: "higher starts first" },
  {
    key: "checkpointEvery",
    field: "job.checkpoint.every_steps",
    label: "Save every, steps",
    hint: "empty: each run.checkpoint saves",
  },
  {
    key: "reductionsEvery",
    field: "job.record.reductions_every",
    label: "Record reductions every, calls",
    hint: "of strategy.run; 1 records each",
  },
  {
    key: "largeReductionsEvery",
    field: "job.record.large_reductions_every",
    label: "Large reductions every, calls",
    hint: "over 32 elements; empty: as often as costs at most 1 %",
  },
  { key: "labels", field: "labels", label: "Labels", hint: 'team=vision note="two words"' },
  {
    key: "resumeFrom",
    field: "resume_from",
    label: "Resume from",
    hint: "a checkpoint, or a run for its newest",
  },
];

type OptionKey =
  | "runLimit"
  | "stepLimit"
  | "firstStepLimit"
  | "queueLimit"
  | "grace"
  | "userRetries"
  | "priority"
  | "checkpointEvery"
  | "reductionsEvery"
  | "largeReductionsEvery"
  | "labels"
  | "resumeFrom";

const TEXTS: ReadonlySet<OptionKey> = new Set(["labels", "resumeFrom"]);

/** What most runs leave as it is. */
export function OptionFields({ draft, errorOf, change }: OptionFieldsProps) {
  const broken = FIELDS.some(({ field }) => errorOf(field));
  return (
    <details className="group" open={broken || undefined}>
      <summary className="section-rule list-none items-center rounded-control font-strong [&::-webkit-details-marker]:hidden">
        <Chevron />
        Limits, retries, checkpoints, recording, labels
      </summary>
      <div className="grid grid-cols-2 gap-x-4 gap-y-3 pt-3">
        {FIELDS.map(({ key, field, label, hint }) => (
          <Field error={errorOf(field)} hint={hint} key={key} label={label}>
            {(control) => (
              <input
                {...control}
                className={INPUT_CLASS}
                inputMode={TEXTS.has(key) ? "text" : "decimal"}
                onChange={(event) => change({ [key]: event.target.value })}
                value={draft[key]}
              />
            )}
          </Field>
        ))}
      </div>
    </details>
  );
}

function Chevron() {
  return (
    <svg
      aria-hidden="true"
      className="-mr-1 self-center text-muted transition-transform duration-120 group-open:rotate-90"
      fill="none"
      height="12"
      stroke="currentColor"
      strokeWidth="1.5"
      viewBox="0 0 12 12"
      width="12"
    >
      <path d="m4 2 4 4-4 4" />
    </svg>
  );
}
