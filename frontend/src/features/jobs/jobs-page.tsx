import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { keys } from "@/api/queries";
import type { Job } from "@/api/schema";
import { Age } from "@/components/runs/run-columns";
import { Button } from "@/components/ui/button";
import { type Column, DataTable } from "@/components/ui/data-table";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { count, formatInteger } from "@/lib/format";
import { useLiveList } from "@/lib/live";
import { jobsQuery } from "./queries";

const COLUMNS: readonly Column<Job>[] = [
  {
    id: "name",
    header: "Job",
    cell: (job) => (
      <Link className="font-strong hover:underline" params={{ name: job.name }} to="/jobs/$name">
        {job.name}
      </Link>
    ),
    className: "w-full",
  },
  { id: "current", header: "Current", cell: (job) => `v${job.current_version}`, align: "right" },
  {
    id: "versions",
    header: "Versions",
    cell: (job) => formatInteger(job.latest_version),
    align: "right",
    className: "max-sm:hidden",
  },
  { id: "runs", header: "Runs", cell: (job) => formatInteger(job.runs), align: "right" },
  {
    id: "last",
    header: "Last run",
    cell: (job) => <Age moment={job.last_run_at} />,
    align: "right",
    className: "min-w-24",
  },
];

/** Every job by name. */
export function JobsPage() {
  useLiveList("runs", [keys.jobs]);
  const navigate = useNavigate();
  const jobs = useInfiniteQuery(jobsQuery);
  const rows = jobs.data?.pages.flatMap((page) => page.items);
  return (
    <div className="px-4 py-5 lg:px-6">
      <h1 className="sr-only">Jobs</h1>
      {jobs.error && rows && <StaleBanner error={jobs.error} since={jobs.dataUpdatedAt} />}
      {rows ? (
        rows.length === 0 ? (
          <EmptyState snippet="drumline submit digits.py --replicas 8" title="There is no job yet.">
            Submitting a program makes one; each change of the program makes its next version.
          </EmptyState>
        ) : (
          <DataTable
            columns={COLUMNS}
            keyboard
            label="Jobs"
            onRowClick={(job) => void navigate({ to: "/jobs/$name", params: { name: job.name } })}
            rowKey={(job) => job.id}
            rows={rows}
          />
        )
      ) : jobs.error ? (
        <ErrorState
          error={jobs.error}
          onRetry={() => void jobs.refetch()}
          what="The jobs could not be loaded"
        />
      ) : (
        <SkeletonRows label="jobs" rows={8} />
      )}
      {rows && rows.length > 0 && (
        <div className="flex items-center gap-4 py-3 text-muted">
          {count(rows.length, "job")} shown
          {jobs.hasNextPage && (
            <Button compact disabled={jobs.isFetchingNextPage} onClick={() => void jobs.fetchNextPage()}>
              Load more
            </Button>
          )}
        </div>
      )}
    </div>
  );
}
