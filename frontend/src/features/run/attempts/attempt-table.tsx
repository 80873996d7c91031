import { Link } from "@tanstack/react-router";
import type { Attempt } from "@/api/schema";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Section } from "@/components/ui/section";
import { StateBadge } from "@/components/ui/state-badge";
import { formatDuration, formatTime, nameSome, secondsBetween } from "@/lib/format";
import { useNow } from "@/lib/now";

/** Every attempt with how it began and how it ended, newest first. */
export function AttemptTable({ attempts, runId }: { attempts: readonly Attempt[]; runId: string }) {
  const now = useNow();
  const columns: Column<Attempt>[] = [
    { id: "number", header: "Attempt", cell: (attempt) => attempt.number },
    { id: "state", header: "State", cell: (attempt) => <StateBadge state={attempt.state} /> },
    { id: "begins", header: "Begins", cell: (attempt) => beginning(attempt) },
    {
      id: "hosts",
      header: "Host",
      cell: (attempt) => nameSome(attempt.members.map((member) => member.host_name)),
    },
    { id: "started", header: "Started", cell: (attempt) => formatTime(attempt.started_at, now) },
    {
      id: "took",
      header: "Duration",
      align: "right",
      cell: (attempt) => formatDuration(secondsBetween(attempt.started_at, attempt.ended_at, now)),
    },
    {
      id: "reason",
      header: "Ended because",
      className: "w-full",
      cell: (attempt) => attempt.reason?.sentence ?? "–",
    },
    {
      id: "links",
      header: <span className="sr-only">Views</span>,
      cell: (attempt) => <Views attempt={attempt.id} member={attempt.members[0]?.id} runId={runId} />,
    },
  ];
  return (
    <Section title="Attempts">
      <div className="whitespace-nowrap" data-testid="attempts">
        <DataTable columns={columns} label="Attempts" rowKey={(attempt) => attempt.id} rows={attempts} />
      </div>
    </Section>
  );
}

function beginning(attempt: Attempt): string {
  return attempt.resumed_step == null ? "from the start" : `after step ${attempt.resumed_step}`;
}

function Views({ runId, attempt, member }: { runId: string; attempt: string; member: string | undefined }) {
  return (
    <span className="flex gap-3 text-xs">
      <Link className="link" params={{ runId }} search={{ attempt }} to="/runs/$runId/metrics">
        Curves
      </Link>
      <Link className="link" params={{ runId }} search={{ attempt }} to="/runs/$runId/reductions">
        Reductions
      </Link>
      {member && (
        <Link className="link" params={{ runId }} search={{ attempt, member }} to="/runs/$runId/logs">
          Log
        </Link>
      )}
    </span>
  );
}
