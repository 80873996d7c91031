import { formatInteger } from "@/lib/format";
import type { Draft } from "./draft";
import { Field, INPUT_CLASS } from "./field";
import type { Swept } from "./snippets";
import { sizeOf } from "./sweep";

interface SweepFieldsProps {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  error: string | undefined;
  swept: Swept | undefined;
}

/** What a sweep is called, and how many runs it makes. */
export function SweepFields({ draft, change, error, swept }: SweepFieldsProps) {
  return (
    <div className="pt-3">
      <p className={error ? "text-bad" : "text-muted"} role="status">
        {error ?? (swept ? sentence(swept) : "One run for each combination of the values below.")}
      </p>
      <Field className="mt-3" label="Name of the sweep">
        {(control) => (
          <input
            {...control}
            className={INPUT_CLASS}
            maxLength={200}
            onChange={(event) => change({ sweepName: event.target.value })}
            placeholder="the job's name"
            spellCheck={false}
            value={draft.sweepName}
          />
        )}
      </Field>
    </div>
  );
}

function sentence({ grid }: Swept): string {
  const varied = Object.entries(grid).map(([name, values]) => `${values.length} of ${name}`);
  return `${formatInteger(sizeOf(grid))} runs: ${varied.join(" × ")}.`;
}
