import type { ProgramEntrypoint } from "@/api/schema";
import { Section } from "@/components/ui/section";
import { Segmented } from "@/components/ui/segmented";
import { Select } from "@/components/ui/select";
import { EmptyState } from "@/components/ui/view-states";
import { CopyAs } from "./copy-as";
import { type Draft, jobNameOf } from "./draft";
import { Field, INPUT_CLASS } from "./field";
import type { Fit } from "./fit";
import { KeptNote } from "./kept-note";
import { Forecast } from "./needs";
import { OptionFields } from "./option-fields";
import { ParameterFields } from "./parameter-fields";
import type { Submission } from "./request";
import type { Shape } from "./shape";
import type { Swept } from "./snippets";
import { StrategyFields } from "./strategy-fields";
import { SweepFields } from "./sweep-fields";

interface FormProps {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  errorOf: (field: string) => string | undefined;
  filename: string;
  entrypoints: readonly ProgramEntrypoint[];
  entrypoint: ProgramEntrypoint | undefined;
  /** The server looked and found nothing to run. */
  noEntrypoint: boolean;
  fit: Fit | undefined;
  fleetError: unknown;
  shape: Shape;
  request: Submission | null;
  /** What is varied, where the form stands for a sweep and is complete. */
  swept: Swept | undefined;
}

/** Everything about the run but its program. */
export function Form(props: FormProps) {
  const { draft, change, errorOf, entrypoint, fit, request, shape } = props;
  return (
    <div className="min-w-0 space-y-7">
      <Section note={entrypoint?.summary} title="Job">
        <JobFields {...props} />
      </Section>
      {props.noEntrypoint && <NoEntrypoint />}
      {entrypoint && (
        <Section
          aside={
            <Segmented
              choices={[
                { value: "run", label: "One run" },
                { value: "sweep", label: "Sweep", disabled: entrypoint.parameters.length === 0 },
              ]}
              label=""
              onChange={(value) => change({ sweep: value === "sweep" })}
              value={draft.sweep ? "sweep" : "run"}
            />
          }
          title="Parameters"
        >
          {draft.sweep && (
            <SweepFields change={change} draft={draft} error={errorOf("sweep")} swept={props.swept} />
          )}
          <ParameterFields
            entrypoint={entrypoint}
            errorOf={errorOf}
            onChange={(name, value) => change({ parameters: withValue(draft.parameters, name, value) })}
            several={draft.sweep}
            values={draft.parameters}
          />
        </Section>
      )}
      <Section title="Strategy">
        <StrategyFields change={change} draft={draft} errorOf={errorOf} />
      </Section>
      <Section title="Devices">
        <Forecast draft={draft} fit={fit} fleetError={props.fleetError} shape={shape} />
        <label className="mt-3 flex items-center gap-2">
          <input
            checked={draft.waitForDevices}
            className="size-4 accent-(--accent)"
            onChange={(event) => change({ waitForDevices: event.target.checked })}
            type="checkbox"
          />
          Queue it even if no host known now could hold it
        </label>
      </Section>
      <OptionFields change={change} draft={draft} errorOf={errorOf} />
      <KeptNote change={change} draft={draft} />
      {request && (
        <CopyAs filename={props.filename} kept={draft.keptProgram} request={request} swept={props.swept} />
      )}
    </div>
  );
}

function JobFields({ draft, change, errorOf, filename, entrypoints, entrypoint }: FormProps) {
  return (
    <div className="grid grid-cols-2 gap-x-4 gap-y-3 pt-3">
      <Field className={entrypoints.length > 1 ? "" : "col-span-2"} error={errorOf("job.name")} label="Name">
        {(control) => (
          <input
            {...control}
            className={INPUT_CLASS}
            onChange={(event) => change({ jobName: event.target.value })}
            placeholder={jobNameOf(filename)}
            spellCheck={false}
            value={draft.jobName}
          />
        )}
      </Field>
      {entrypoints.length > 1 && entrypoint && (
        <Field error={errorOf("job.program.entrypoint")} label="Entrypoint">
          {({ id }) => (
            <Select
              choices={entrypoints.map((entry) => ({
                value: entry.entrypoint,
                label: entry.entrypoint,
                note: entry.summary,
              }))}
              className="w-full"
              id={id}
              onChange={(name) => change({ entrypoint: name, parameters: {} })}
              value={entrypoint.entrypoint}
            />
          )}
        </Field>
      )}
    </div>
  );
}

const MAIN = `def main(run, *, epochs: int = 20):
    """One line that says what it does."""`;

function NoEntrypoint() {
  return (
    <EmptyState snippet={MAIN} title="Nothing to run was found in this program.">
      It needs a function at the top of a module whose first parameter is named <code>run</code>; its keywords
      become the parameters here.
    </EmptyState>
  );
}

function withValue(
  values: Draft["parameters"],
  name: string,
  value: string | undefined,
): Draft["parameters"] {
  const { [name]: _, ...rest } = values;
  return value === undefined ? rest : { ...rest, [name]: value };
}
