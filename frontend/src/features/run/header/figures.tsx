import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { runQuery } from "@/api/queries";
import type { Run } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { count, formatDuration, formatInteger, formatRate, secondsBetween } from "@/lib/format";
import { useNow } from "@/lib/now";
import { placementQuery, type SteadyRun } from "../queries";
import {
  formatStepTime,
  hasModel,
  noCollectives,
  shareText,
  type Throughput,
  unmeasuredText,
} from "../throughput";

/** Step of total as a ruler over the whole width, and the run's figures in one line under it. */
export function Figures({ runId }: { runId: string }) {
  const run = useQuery(runQuery(runId)).data;
  return run && <FiguresOf run={run} />;
}

function FiguresOf({ run }: { run: Run }) {
  const now = useNow();
  const { step, total_steps: total, steps_per_s: rate, examples_per_s: examples, throughput } = run.progress;
  const ended = isTerminal(run.state);
  const left = total && step !== null && step !== undefined && rate && !ended ? (total - step) / rate : null;
  return (
    <div>
      <Ruler ended={ended} state={run.state} step={step} total={total} />
      <dl className="mt-3 flex flex-wrap gap-x-8 gap-y-2">
        <Figure name="Steps" value={stepText(step, total, ended)} />
        <Figure name="Steps/s" value={formatRate(rate)} />
        {!ended && <Figure name="Examples/s" value={formatRate(examples)} />}
        {throughput && <Shares ended={ended} throughput={throughput} />}
        <Figure name="Duration" value={<Duration now={now} run={run} />} />
        {left !== null && <Figure name="Left" value={`about ${formatDuration(left)}`} />}
        <Figure name="Replicas" value={<Replicas run={run} />} />
        {run.attempts > 0 && <Figure name="Attempt" value={formatInteger(run.attempts)} />}
      </dl>
    </div>
  );
}

type Timed = Pick<Run, "attempts" | "created_at" | "ended_at" | "started_at">;

/** Of the newest attempt; where there were others before, also of the run since its submission. */
export function Duration({ run, now }: { run: Timed; now: number }) {
  const whole = formatDuration(secondsBetween(run.created_at, run.ended_at, now));
  return (
    <span title={`${whole} since its submission`}>
      {run.started_at ? formatDuration(secondsBetween(run.started_at, run.ended_at, now)) : "not started"}
      {run.attempts > 1 && <span className="text-muted">, {whole} in all</span>}
    </span>
  );
}

/** Tokens a second where the program told their number, and how much of the chips it uses. */
function Shares({ throughput, ended }: { throughput: Throughput; ended: boolean }) {
  const { tokens_per_s: tokens, mfu_percent: mfu, mfu_unknown: noMfu } = throughput;
  const { hfu_percent: hfu, hfu_unknown: noHfu } = throughput;
  return (
    <>
      {typeof tokens === "number" && !ended && <Figure name="Tokens/s" value={formatRate(tokens)} />}
      {hasModel(throughput) && <Figure name="MFU" value={<Share percent={mfu} unknown={noMfu} />} />}
      <Figure name="HFU" value={<Share percent={hfu} unknown={noHfu} />} />
      <Collectives throughput={throughput} />
    </>
  );
}

/** From the newest step that was traced; nothing where none is to be. */
function Collectives({ throughput: { sampled, sampled_unknown: unknown } }: { throughput: Throughput }) {
  if (!sampled && !unknown) return null;
  const text = sampled ? formatStepTime(sampled.collective_ms) : unmeasuredText(unknown).split(":")[0];
  const title = sampled
    ? `sampled at step ${sampled.step}: ${noCollectives(sampled.collective_ms) || "of that step"}`
    : unmeasuredText(unknown);
  return (
    <Figure
      name="In collectives"
      value={
        <span className={sampled ? "" : "text-muted"} title={title}>
          {text}
          {sampled && <span className="text-muted"> sampled</span>}
        </span>
      }
    />
  );
}

function Share(share: { percent: number | null | undefined; unknown: string | null | undefined }) {
  const text = shareText(share.percent, share.unknown);
  if (typeof share.percent === "number") return <>{text}</>;
  // The whole reason is on the Time tab; here a long one would take the line.
  return (
    <span className="text-muted" title={text}>
      {text.split(":")[0]}
    </span>
  );
}

function Figure({ name, value }: { name: string; value: ReactNode }) {
  return (
    <div>
      <dt className="text-2xs text-muted">{name}</dt>
      <dd data-testid={`figure-${name.toLowerCase().replace(" ", "-").replace("/", "-per-")}`}>{value}</dd>
    </div>
  );
}

function Replicas({ run }: { run: SteadyRun }) {
  const placement = useQuery(placementQuery(run.id));
  const devices = placement.data?.devices.filter((device) => device.replica !== null).length ?? 0;
  const simulated = placement.data?.devices.every((device) => device.simulated) ?? false;
  if (devices === 0) return <>{formatInteger(run.replicas)}</>;
  const where = run.hosts.length === 1 ? ` on ${run.hosts[0]}` : `, ${count(run.hosts.length, "host")}`;
  return (
    <>
      {formatInteger(run.replicas)} <span className="text-muted">on</span>{" "}
      {count(devices, simulated ? "simulated device" : "device")}
      <span className="text-muted">{where}</span>
    </>
  );
}

function stepText(
  step: number | null | undefined,
  total: number | null | undefined,
  ended: boolean,
): ReactNode {
  if (step === null || step === undefined) return ended ? "none" : "none yet";
  if (!total) return formatInteger(step);
  return (
    <>
      {formatInteger(step)} <span className="text-muted">/ {formatInteger(total)}</span>
    </>
  );
}

interface RulerProps {
  step: number | null | undefined;
  total: number | null | undefined;
  ended: boolean;
  state: string;
}

const FILL: Record<string, string> = {
  SUCCEEDED: "var(--ok)",
  FAILED: "var(--bad)",
  CANCELLED: "var(--idle)",
};

const TENTHS = Array.from({ length: 11 }, (_, tenth) => `M${Math.min(999, tenth * 100)} 0h1v4h-1z`).join("");

/** A ruler: ticks at tenths, filled up to the present step. */
function Ruler({ step, total, ended, state }: RulerProps) {
  if (!total || step === null || step === undefined) return <div className="h-px bg-line" />;
  const share = Math.min(1, step / total);
  return (
    <svg
      aria-label={`Step ${step} of ${total}`}
      className="block h-2 w-full"
      preserveAspectRatio="none"
      role="img"
      viewBox="0 0 1000 8"
    >
      <rect fill="var(--line)" height="3" width="1000" y="5" />
      <rect
        fill={ended ? (FILL[state] ?? "var(--idle)") : "var(--active)"}
        height="3"
        width={1000 * share}
        y="5"
      />
      <path d={TENTHS} fill="var(--line-strong)" />
    </svg>
  );
}
