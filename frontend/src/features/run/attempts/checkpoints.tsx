import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Attempt, Checkpoint } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Section } from "@/components/ui/section";
import { StateBadge } from "@/components/ui/state-badge";
import { EmptyState, ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { formatBytes, formatTime, shortId } from "@/lib/format";
import { useNow } from "@/lib/now";
import { checkpointsQuery } from "../queries";

interface CheckpointsProps {
  runId: string;
  attempts: readonly Attempt[];
}

/** What was saved, and who resumed from it; the first that is kept is where the run would resume now. */
export function Checkpoints({ runId, attempts }: CheckpointsProps) {
  const pages = useInfiniteQuery(checkpointsQuery(runId));
  const rows = pages.data?.pages.flatMap((page) => page.items) ?? [];
  const kept = rows.filter((row) => row.state === "KEPT").length;
  return (
    <Section note={kept > 0 ? `${kept} kept` : undefined} title="Checkpoints">
      {!pages.data && pages.error && (
        <ErrorState
          error={pages.error}
          onRetry={() => void pages.refetch()}
          what="The checkpoints could not be loaded"
        />
      )}
      {!pages.data && !pages.error && <SkeletonRows label="the checkpoints" rows={3} />}
      {pages.data && rows.length === 0 && (
        <EmptyState
          snippet={
            "state = run.restore(state)\nfor step in range(run.next_step, steps):\n    ...\n    run.checkpoint(state, step=step)"
          }
          title="Nothing was saved."
        >
          A program that saves its state resumes from there after a failure, with the same reductions.
        </EmptyState>
      )}
      {rows.length > 0 && <CheckpointTable attempts={attempts} rows={rows} runId={runId} />}
      {pages.hasNextPage && (
        <Button
          className="mt-3"
          compact
          disabled={pages.isFetchingNextPage}
          onClick={() => void pages.fetchNextPage()}
        >
          Show more
        </Button>
      )}
    </Section>
  );
}

function CheckpointTable({ runId, attempts, rows }: CheckpointsProps & { rows: readonly Checkpoint[] }) {
  const now = useNow();
  const number = new Map(attempts.map((attempt) => [attempt.id, attempt.number]));
  const columns: Column<Checkpoint>[] = [
    { id: "step", header: "Step", align: "right", cell: (row) => row.step },
    { id: "state", header: "State", cell: (row) => <StateBadge state={row.state} /> },
    { id: "attempt", header: "Saved by", cell: (row) => `attempt ${number.get(row.attempt) ?? "–"}` },
    { id: "resumed", header: "Went on from it", cell: (row) => resumedBy(row, attempts) },
    { id: "size", header: "Size", align: "right", cell: (row) => formatBytes(row.size_bytes) },
    { id: "age", header: "Saved", cell: (row) => formatTime(row.created_at, now) },
    { id: "where", header: "Where", cell: (row) => (row.shared ? "shared volume" : row.host_name) },
    {
      id: "id",
      header: "Id",
      className: "w-full",
      cell: (row) => (
        <span className="flex items-center gap-1">
          <code className="text-xs">{shortId(row.id)}</code>
          <CopyButton bare label="Copy the checkpoint's id" text={row.id} />
        </span>
      ),
    },
    {
      id: "resume",
      header: <span className="sr-only">Submit from here</span>,
      cell: (row) =>
        row.state === "KEPT" && (
          <Link className="link text-xs" search={{ from: runId, resume: row.id }} to="/submit">
            Go on from here
          </Link>
        ),
    },
  ];
  return (
    <div className="whitespace-nowrap" data-testid="checkpoints">
      <DataTable columns={columns} label="Checkpoints" rowKey={(row) => row.id} rows={rows} />
    </div>
  );
}

function resumedBy(row: Checkpoint, attempts: readonly Attempt[]): string {
  const numbers = attempts.filter((attempt) => attempt.resumed_from === row.id).map(({ number }) => number);
  return numbers.length > 0 ? `attempt ${numbers.reverse().join(", ")}` : "–";
}
