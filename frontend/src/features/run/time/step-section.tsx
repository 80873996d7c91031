import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { runQuery } from "@/api/queries";
import type { Run } from "@/api/schema";
import { Section } from "@/components/ui/section";
import { formatInteger, formatRate } from "@/lib/format";
import {
  formatFlops,
  formatStepTime,
  hasModel,
  noCollectives,
  shareText,
  type Throughput,
  unmeasuredText,
} from "../throughput";

/** What one step takes and what that is of: the figures of the header, with where they come from. */
export function StepSection({ runId, ended }: { runId: string; ended: boolean }) {
  const progress = useQuery(runQuery(runId)).data?.progress;
  if (!progress?.throughput) return null;
  return (
    <Section note={noteOf(progress, ended)} title="A step">
      <dl
        className="grid grid-cols-[repeat(auto-fill,minmax(9.5rem,1fr))] gap-x-6 gap-y-4 pt-3"
        data-testid="step"
      >
        <Times throughput={progress.throughput} />
        <Sampled throughput={progress.throughput} />
        <Rates progress={progress} throughput={progress.throughput} />
      </dl>
    </Section>
  );
}

function noteOf({ steps_per_s: rate }: Run["progress"], ended: boolean): string {
  if (ended) return "mean of all but the first";
  return rate === 0 ? "the program stands still" : "mean of the last 5 s";
}

function Times({ throughput }: { throughput: Throughput }) {
  const { step_ms: step, input_wait_ms: input, dispatch_ms: dispatch } = throughput;
  if (typeof step !== "number" || typeof input !== "number" || typeof dispatch !== "number") return null;
  const rest = Math.max(0, step - input - dispatch);
  return (
    <>
      <Fact name="Step time" value={formatStepTime(step)} />
      <Fact name="Input wait" note="for a distributed dataset" value={formatStepTime(input)} />
      <Fact name="Dispatch" note="within strategy.run" value={formatStepTime(dispatch)} />
      <Fact name="The rest" note="devices, and the program's own code" value={formatStepTime(rest)} />
    </>
  );
}

/** What devices do in a step, from the newest that was traced. */
function Sampled({ throughput: { sampled, sampled_unknown: unknown } }: { throughput: Throughput }) {
  if (!sampled) return <Fact name="In collectives" value={unmeasuredText(unknown)} />;
  const whole = `${formatStepTime(sampled.span_ms)}, sampled at step ${formatInteger(sampled.step)}`;
  return (
    <>
      <Fact
        name="In collectives"
        note={noCollectives(sampled.collective_ms) || `of ${whole}, mean of devices`}
        value={formatStepTime(sampled.collective_ms)}
      />
      <Fact
        name="Devices compute"
        note={
          sampled.both_ms > 0 ? `of it ${formatStepTime(sampled.both_ms)} beside collectives` : `of ${whole}`
        }
        value={formatStepTime(sampled.computing_ms)}
      />
      <Fact name="Devices idle" note={`of ${whole}`} value={formatStepTime(sampled.idle_ms)} />
    </>
  );
}

function Rates({ progress, throughput }: { progress: Run["progress"]; throughput: Throughput }) {
  const { tokens_per_s: tokens, flops_per_s: flops } = throughput;
  return (
    <>
      {typeof progress.examples_per_s === "number" && (
        <Fact name="Examples/s" value={formatRate(progress.examples_per_s)} />
      )}
      {typeof tokens === "number" && <Fact name="Tokens/s" value={formatRate(tokens)} />}
      {typeof flops === "number" && (
        <Fact name="Arithmetic" note="of each device, as XLA counts it" value={formatFlops(flops)} />
      )}
      {hasModel(throughput) && (
        <Fact
          name="MFU"
          note="by the program's flops_per_example"
          value={shareText(throughput.mfu_percent, throughput.mfu_unknown)}
        />
      )}
      <Fact
        name="HFU"
        note={noteOfShare(throughput)}
        value={shareText(throughput.hfu_percent, throughput.hfu_unknown)}
      />
    </>
  );
}

function noteOfShare({ chip, hfu_percent: hfu }: Throughput): string {
  if (!chip) return "devices of several kinds";
  return typeof hfu === "number" ? `of the bfloat16 peak of ${chip}` : `JAX calls it ${chip}`;
}

function Fact({ name, value, note }: { name: string; value: ReactNode; note?: string }) {
  return (
    <div>
      <dt className="text-2xs text-muted">{name}</dt>
      <dd data-testid={`step-${name.toLowerCase().replaceAll(/[ /]/g, "-")}`}>{value}</dd>
      {note && <dd className="text-2xs text-muted">{note}</dd>}
    </div>
  );
}
