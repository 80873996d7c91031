import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { JsonValue } from "@/api/schema";
import { ownerFilter } from "@/components/runs/owner";
import { leftOut } from "@/components/runs/parameters";
import { resultFlaw } from "@/components/runs/run-facts";
import { StrategyMark } from "@/components/ui/glyphs";
import { LineText } from "@/components/ui/line-text";
import { PrincipalName } from "@/components/ui/principal-name";
import { classNames } from "@/lib/class-names";
import { count, formatTime, formatUtc, shortId } from "@/lib/format";
import { useNow } from "@/lib/now";
import { exactText } from "@/lib/wire-numbers";
import type { SteadyRun } from "../queries";

/** What was asked for and what came out, in small type. */
export function Particulars({ run }: { run: SteadyRun }) {
  const now = useNow();
  const labels = Object.entries(run.labels);
  const summary = Object.entries(run.summary ?? {});
  return (
    <dl className="grid grid-cols-[auto_1fr] items-start gap-x-4 gap-y-0.5 text-xs max-sm:max-h-32 max-sm:overflow-y-auto">
      {run.state === "SUCCEEDED" && (
        <Line name="Result">
          <code
            className={classNames("break-words", resultFlaw(run) ? "text-warn" : "text-text")}
            data-testid="run-result"
          >
            {run.result == null ? (
              <span className="text-muted">none</span>
            ) : (
              <LineText text={exactText(run.result)} />
            )}
          </code>
        </Line>
      )}
      {summary.length > 0 && (
        <Line name="Summary">
          <span className="flex min-h-5 flex-wrap items-center gap-x-4" data-testid="run-summary">
            {summary.map(([name, value]) => (
              <code className="break-all" key={name}>
                <span className="text-muted">{name}=</span>
                <LineText text={String(value)} />
              </code>
            ))}
          </span>
        </Line>
      )}
      <Line name="Program">
        <span className="flex flex-wrap items-center gap-x-3">
          <StrategyMark kind={run.strategy} />
          <code>{run.spec.program.entrypoint}</code>
          <span className="text-muted" title={formatUtc(run.created_at)}>
            submitted {formatTime(run.created_at, now)}
          </span>
          <span className="text-muted">
            by{" "}
            <Link className="link" search={{ q: ownerFilter(run.owner) }} to="/runs">
              <PrincipalName who={run.owner} />
            </Link>
          </span>
        </span>
      </Line>
      {run.deleted_from && (
        <Line name="Kept">until {formatUtc(run.deleted_from)}, then deleted unless it is starred</Line>
      )}
      <Origin run={run} />
      <Parameters run={run} />
      {labels.length > 0 && (
        <Line name="Labels">
          <span className="flex min-h-5 flex-wrap items-center gap-x-4">
            {labels.map(([name, value]) => (
              <code className="break-all" key={name}>
                <span className="text-muted">{name}=</span>
                <LineText text={value} />
              </code>
            ))}
          </span>
        </Line>
      )}
    </dl>
  );
}

const FEW_DEFAULTS = 8;

/** As they were given; then what the program took for the others, the first of many unless asked. */
function Parameters({ run }: { run: SteadyRun }) {
  const [whole, setWhole] = useState(false);
  const defaults = Object.entries(leftOut(run));
  const shown = whole ? defaults : defaults.slice(0, FEW_DEFAULTS);
  const more = defaults.length - shown.length;
  return (
    <>
      <Values name="Parameters" values={Object.entries(run.parameters)} />
      <Values name="Defaults" values={shown}>
        {more > 0 && (
          <button className="link min-h-5" onClick={() => setWhole(true)} type="button">
            {count(more, "more default")}
          </button>
        )}
      </Values>
    </>
  );
}

interface ValuesProps {
  name: string;
  values: readonly [string, JsonValue][];
  children?: React.ReactNode;
}

function Values({ name, values, children }: ValuesProps) {
  if (values.length === 0) return null;
  return (
    <Line name={name}>
      <span className="flex min-h-5 flex-wrap items-center gap-x-4" data-testid={`run-${name.toLowerCase()}`}>
        {values.map(([key, value]) => (
          <code className="leading-5" key={key}>
            <span className="text-muted">{key}=</span>
            <LineText text={valueText(value)} />
          </code>
        ))}
        {children}
      </span>
    </Line>
  );
}

/** What the run came from: a sweep, an older run, a checkpoint. */
function Origin({ run }: { run: SteadyRun }) {
  return (
    <>
      {run.batch && (
        <Line name="Sweep">
          <Link className="link" params={{ batchId: run.batch }} to="/batches/$batchId">
            <code>{shortId(run.batch)}</code>
          </Link>
        </Line>
      )}
      {run.rerun_of && (
        <Line name="Repeats">
          <Link className="link" params={{ runId: run.rerun_of }} to="/runs/$runId/metrics">
            <code>{shortId(run.rerun_of)}</code>
          </Link>
        </Line>
      )}
      {run.resume_from && (
        <Line name="Resumes from">
          checkpoint <code title={run.resume_from}>{shortId(run.resume_from)}</code>
        </Line>
      )}
    </>
  );
}

function Line({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div className="contents">
      <dt className="text-muted leading-5">{name}</dt>
      <dd className="min-w-0 leading-5">{children}</dd>
    </div>
  );
}

function valueText(value: JsonValue): string {
  const text = exactText(value);
  return text.length > 120 ? `${text.slice(0, 119)}…` : text;
}
