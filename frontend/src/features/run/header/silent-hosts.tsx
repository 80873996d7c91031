import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { hostsQuery, keys } from "@/api/queries";
import type { Host } from "@/api/schema";
import { Age } from "@/components/runs/run-columns";
import { StateBadge } from "@/components/ui/state-badge";
import { useLiveList } from "@/lib/live";
import type { SteadyRun } from "../queries";

/** Hosts of a run from which nothing is heard: what the page shows of the run may be old. */
export function SilentHosts({ run }: { run: SteadyRun }) {
  useLiveList("fleet", [keys.hosts]);
  const hosts = useQuery(hostsQuery);
  const silent = silentHosts(hosts.data ?? [], run.id);
  if (silent.length === 0) return null;
  return (
    <div className="max-w-3xl border-warn border-l-2 py-0.5 pl-4" data-testid="silent-hosts" role="status">
      {silent.map((host) => (
        <p className="flex flex-wrap items-center gap-x-3" key={host.id}>
          <StateBadge state={host.state} />
          <Link className="font-strong hover:underline" search={{ sel: `host:${host.id}` }} to="/devices">
            {host.name}
          </Link>
          <span>
            last heard of <Age moment={host.last_heartbeat_at} />
          </span>
          <span className="text-muted">
            {host.state === "suspect"
              ? "What is shown here is from before that."
              : "Its lease has run out: the run resumes elsewhere, or ends."}
          </span>
        </p>
      ))}
    </div>
  );
}

/** Those of the hosts on which the run is that fell silent. */
function silentHosts(hosts: readonly Host[], run: string): Host[] {
  return hosts.filter(
    (host) => host.runs.includes(run) && (host.state === "suspect" || host.state === "lost"),
  );
}
