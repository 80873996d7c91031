import { Link } from "@tanstack/react-router";
import type { Overview } from "@/api/schema";
import { RUN_COLUMNS } from "@/components/runs/run-columns";
import { DataTable } from "@/components/ui/data-table";
import { Section } from "@/components/ui/section";
import { EmptyState } from "@/components/ui/view-states";

const { state, job, strategy, replicas, progress, rate, duration, left, hosts, ended, outcome } = RUN_COLUMNS;
const RUNNING = [state, job, strategy, replicas, progress, rate, duration, left, hosts];
const RECENT = [state, job, strategy, replicas, outcome, duration, ended];

interface PartProps {
  overview: Overview;
  className?: string;
}

export function RunningRuns({ overview, className }: PartProps) {
  const { running, running_total: total } = overview;
  return (
    <Section
      aside={
        total > running.length && (
          <Link className="link" search={{ q: "state:running" }} to="/runs">
            All {total}
          </Link>
        )
      }
      className={className}
      note={total > 0 && String(total)}
      title="Running"
    >
      {running.length === 0 ? (
        <p className="py-3 text-muted">No run is running.</p>
      ) : (
        <DataTable
          columns={RUNNING}
          keyboard
          label="Running runs"
          rowKey={(run) => run.id}
          rows={running}
          twoLines
        />
      )}
    </Section>
  );
}

export function RecentRuns({ overview, className }: PartProps) {
  return (
    <Section
      aside={
        <Link className="link" to="/runs">
          All runs
        </Link>
      }
      className={className}
      note={overview.recent.length > 0 && "ended last; what runs is under Running"}
      title="Recent"
    >
      {overview.recent.length === 0 ? (
        <p className="py-3 text-muted">No run has ended yet.</p>
      ) : (
        <DataTable
          columns={RECENT}
          keyboard={overview.running.length === 0}
          label="Recent runs"
          rowKey={(run) => run.id}
          rows={overview.recent}
          twoLines
        />
      )}
    </Section>
  );
}

const FIRST_RUN = `from drumline import Client

run = Client().submit("digits.py", replicas=8)
run.wait()`;

/** Nothing has ever run here: how to begin. */
export function FirstRun({ className }: { className?: string }) {
  return (
    <Section className={className} title="Runs">
      <EmptyState snippet={FIRST_RUN} title="Nothing has run here yet.">
        Submit a program from Python, or{" "}
        <Link className="link" to="/submit">
          open Submit
        </Link>{" "}
        with an example that runs on any fleet.
      </EmptyState>
    </Section>
  );
}
