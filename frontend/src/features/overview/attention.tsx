import { Link } from "@tanstack/react-router";
import type { Overview, RunSummary } from "@/api/schema";
import { Age, RunLink } from "@/components/runs/run-columns";
import { flawOf } from "@/components/runs/run-facts";
import { LineText } from "@/components/ui/line-text";
import { Section } from "@/components/ui/section";
import { StateBadge } from "@/components/ui/state-badge";
import { count } from "@/lib/format";
import { isTroubled } from "./sentence";

const MOST_HOSTS = 10;

/** Runs that stand still, failed runs of the last day, hosts that fell silent and hosts on which runs fail. Not drawn where there are none. */
export function Attention({ overview, className }: { overview: Overview; className?: string }) {
  const hosts = overview.hosts.filter(isTroubled).slice(0, MOST_HOSTS);
  const unnamed = overview.hosts_silent + overview.hosts_failing - hosts.length;
  const unlisted =
    overview.failed_total - overview.attention.filter(({ state }) => state === "FAILED").length;
  if (hosts.length + overview.attention.length === 0) return null;
  return (
    <Section
      className={className}
      note="standing still, failed in the last day, failing, or silent"
      title="Needs attention"
    >
      <ul>
        {hosts.map((host) => (
          <li className="flex h-8 items-center gap-4 border-line border-b" key={host.id}>
            <span className="min-w-24 sm:min-w-52">
              <StateBadge state={host.state} />
            </span>
            <Link
              className="flex h-6 shrink-0 items-center truncate font-strong hover:underline sm:w-72"
              search={{ sel: `host:${host.id}` }}
              to="/devices"
            >
              {host.name}
            </Link>
            <span className="min-w-0 flex-1 truncate text-muted">
              {host.trouble ? (
                host.trouble.sentence
              ) : (
                <>
                  last heard of <Age moment={host.last_heartbeat_at} />, {count(host.runs.length, "run")} on
                  it
                </>
              )}
            </span>
          </li>
        ))}
        {unnamed > 0 && (
          <li className="flex h-8 items-center border-line border-b">
            <Link className="link" to="/devices">
              {count(unnamed, "more host")}
            </Link>
          </li>
        )}
        {overview.attention.map((run) => (
          <TroubledRun key={run.id} run={run} />
        ))}
        {unlisted > 0 && (
          <li className="flex h-8 items-center border-line border-b">
            <Link className="link" search={{ where: "state = FAILED and ended > -1d" }} to="/runs">
              {count(unlisted, "more failed run")}
            </Link>
          </li>
        )}
      </ul>
    </Section>
  );
}

function TroubledRun({ run }: { run: RunSummary }) {
  const why = run.stalled_at
    ? "Its steps get no further."
    : run.reason?.message.split("\n").at(-1)?.trim() || run.reason?.sentence || "";
  return (
    <li className="flex min-h-8 items-center gap-4 border-line border-b max-sm:flex-wrap max-sm:gap-y-0 max-sm:py-1">
      <span className="min-w-24 sm:min-w-52">
        <StateBadge flaw={flawOf(run)} state={run.state} />
      </span>
      <span className="flex min-w-0 shrink-0 sm:w-72">
        <RunLink run={run} />
      </span>
      <span className="min-w-0 flex-1 truncate max-sm:basis-full" title={run.reason?.sentence}>
        <LineText text={why} />
      </span>
      <span className="text-muted">
        <Age moment={run.stalled_at ?? run.ended_at} />
      </span>
      <Link className="link py-0.5" params={{ runId: run.id }} to="/runs/$runId/logs">
        Log
      </Link>
    </li>
  );
}
