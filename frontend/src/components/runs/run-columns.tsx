import { Link } from "@tanstack/react-router";
import type { RunSummary } from "@/api/schema";
import { isTerminal } from "@/api/states";
import type { Column } from "@/components/ui/data-table";
import { StrategyMark } from "@/components/ui/glyphs";
import { PrincipalName } from "@/components/ui/principal-name";
import { ProgressRule } from "@/components/ui/progress-rule";
import { StateBadge } from "@/components/ui/state-badge";
import { classNames } from "@/lib/class-names";
import {
  count,
  formatAge,
  formatDuration,
  formatInteger,
  formatRate,
  formatUtc,
  shortId,
} from "@/lib/format";
import { useNow } from "@/lib/now";
import { becauseOf, flawOf, runningSeconds, secondsLeft } from "./run-facts";

type RunColumn = Column<RunSummary>;

/** The columns that lists of runs are made of. */
export const RUN_COLUMNS = {
  state: {
    id: "state",
    header: "State",
    cell: (run) => <StateBadge flaw={flawOf(run)} state={run.state} />,
    className: "w-28",
  },
  job: {
    id: "job",
    header: "Run",
    cell: (run) => (
      <>
        <RunLink run={run} />
        <WaitLine run={run} />
        <Beneath run={run} />
      </>
    ),
  },
  /** Where `because` stands beside it. */
  jobOnly: {
    id: "job",
    header: "Run",
    cell: (run) => (
      <>
        <RunLink run={run} />
        <Beneath run={run} />
      </>
    ),
  },
  strategy: {
    id: "strategy",
    header: "Strategy",
    cell: (run) => <StrategyMark kind={run.strategy} />,
    className: "max-xl:hidden",
  },
  replicas: {
    id: "replicas",
    header: "Replicas",
    cell: (run) => run.replicas,
    align: "right",
    className: "max-lg:hidden",
  },
  owner: {
    id: "owner",
    header: "Owner",
    cell: (run) => <PrincipalName who={run.owner} />,
    className: "max-lg:hidden",
  },
  progress: {
    id: "progress",
    header: "Progress",
    cell: (run) => (
      <ProgressRule live={!isTerminal(run.state)} step={run.progress.step} total={run.progress.total_steps} />
    ),
    className: "max-lg:hidden",
  },
  rate: {
    id: "rate",
    header: "Steps/s",
    cell: (run) => <Rate run={run} />,
    align: "right",
    className: "max-md:hidden",
  },
  duration: {
    id: "duration",
    header: "Duration",
    cell: (run) => <Duration run={run} />,
    align: "right",
    className: "max-sm:hidden",
  },
  left: {
    id: "left",
    header: "Left",
    cell: (run) => <Left run={run} />,
    align: "right",
    className: "max-xl:hidden",
  },
  hosts: {
    id: "hosts",
    header: "Hosts",
    cell: (run) => (run.hosts.length === 0 ? <Dash /> : <Hosts names={run.hosts} />),
    className: "max-xl:hidden",
  },
  created: {
    id: "created",
    header: "Created",
    cell: (run) => <Age moment={run.created_at} />,
    align: "right",
  },
  ended: { id: "ended", header: "Ended", cell: (run) => <Age moment={run.ended_at} />, align: "right" },
  because: {
    id: "because",
    header: "Because",
    cell: (run) => <Because run={run} />,
    className: "w-full max-w-0 truncate max-sm:hidden",
  },
  outcome: {
    id: "outcome",
    header: "Outcome",
    cell: (run) => <Outcome run={run} />,
    className: "w-full max-w-0 truncate max-lg:hidden",
  },
} satisfies Record<string, RunColumn>;

/** The job's name and the run's short id, as the link to the run. */
export function RunLink({ run }: { run: Pick<RunSummary, "id" | "job"> & { version?: number } }) {
  return (
    <Link
      className="inline-flex h-6 min-w-0 items-center gap-2 align-middle hover:underline"
      params={{ runId: run.id }}
      title={run.id}
      to="/runs/$runId/metrics"
    >
      <span className="max-w-36 truncate sm:max-w-52 font-strong">{run.job}</span>
      {run.version !== undefined && <span className="text-muted">v{run.version}</span>}
      <code className="whitespace-nowrap text-muted max-sm:hidden">{shortId(run.id)}</code>
    </Link>
  );
}

/** What a run waits for. One whose host has moved counts as running, but may have come to its end. */
export function WaitLine({ run }: { run: Pick<RunSummary, "wait"> }) {
  if (!run.wait) return null;
  const tone = run.wait.rule === "host_moved" ? "text-warn" : "text-muted";
  return (
    <span
      className={classNames("-mt-0.5 block max-w-80 truncate pb-1 text-xs max-sm:hidden", tone)}
      data-rule={run.wait.rule}
      title={run.wait.phrase}
    >
      {run.wait.phrase}
    </span>
  );
}

/** On a phone what has no column stands under the name: why a run waits or failed, else how far it is. */
function Beneath({ run }: { run: RunSummary }) {
  const { step, total_steps: total } = run.progress;
  const because = becauseOf(run);
  const steps =
    step == null ? "" : ` · step ${formatInteger(step)}${total ? ` / ${formatInteger(total)}` : ""}`;
  return (
    <span className="-mt-0.5 block max-w-38 truncate pb-1 text-muted text-xs sm:hidden">
      {because ?? `${count(run.replicas, "replica")}${steps}`}
    </span>
  );
}

/** What a waiting run waits for, or why one did not succeed. */
function Because({ run }: { run: RunSummary }) {
  const because = becauseOf(run);
  return because ? <span title={because}>{because}</span> : <Dash />;
}

function Outcome({ run }: { run: RunSummary }) {
  if (!run.reason) return <Dash />;
  const because = becauseOf(run);
  return because ? (
    <span title={because}>{because}</span>
  ) : (
    <span className="text-muted">{run.reason.sentence}</span>
  );
}

function Hosts({ names }: { names: readonly string[] }) {
  const more = names.length - 2;
  return (
    <span className="block max-w-28 truncate" title={names.join(", ")}>
      {names.slice(0, 2).join(", ")}
      {more > 0 && <span className="text-muted"> +{more}</span>}
    </span>
  );
}

function Rate({ run }: { run: RunSummary }) {
  const rate = run.progress.steps_per_s ?? null;
  if (rate === null) return <Dash />;
  return <span title={isTerminal(run.state) ? "mean of the run" : "at present"}>{formatRate(rate)}</span>;
}

function Duration({ run }: { run: RunSummary }) {
  const seconds = runningSeconds(run, useNow());
  return seconds === null ? <Dash /> : formatDuration(seconds);
}

function Left({ run }: { run: RunSummary }) {
  const seconds = secondsLeft(run);
  return seconds === null ? <Dash /> : `~${formatDuration(seconds)}`;
}

export function Age({ moment }: { moment: string | null }) {
  const now = useNow();
  return moment ? (
    <time dateTime={moment} title={formatUtc(moment)}>
      {formatAge(moment, now)}
    </time>
  ) : (
    <Dash />
  );
}

function Dash() {
  return <span className="text-muted">–</span>;
}
