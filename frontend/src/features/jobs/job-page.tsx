import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { keys } from "@/api/queries";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { count } from "@/lib/format";
import { useLiveList } from "@/lib/live";
import { ChangeHistory } from "./change-history";
import { jobQuery } from "./queries";
import { VersionList } from "./version-list";
import { VersionView } from "./version-view";

const route = getRouteApi("/jobs/$name");

/** Which version is good, and what changed? */
export function JobPage() {
  useLiveList("runs", [keys.jobs]);
  const { name } = route.useParams();
  const { v, against } = route.useSearch();
  const job = useQuery(jobQuery(name));
  if (!job.data) {
    return (
      <div className="px-4 py-5 lg:px-6">
        <h1 className="sr-only">Job {name}</h1>
        {job.error ? (
          <ErrorState error={job.error} onRetry={() => void job.refetch()} what="The job could not be loaded">
            <Link className="link" to="/jobs">
              All jobs
            </Link>
          </ErrorState>
        ) : (
          <SkeletonRows label="the job" />
        )}
      </div>
    );
  }
  const number = v ?? job.data.current_version;
  return (
    <div className="px-4 py-5 lg:px-6">
      {job.error && <StaleBanner error={job.error} since={job.dataUpdatedAt} />}
      <h1 className="flex flex-wrap items-baseline gap-x-3 text-lg">
        <span className="truncate">{job.data.name}</span>
        <span className="font-normal text-muted text-sm">
          version {job.data.current_version} is current, {count(job.data.latest_version, "version")},{" "}
          {count(job.data.runs, "run")}
        </span>
      </h1>
      <div className="mt-5 grid gap-x-10 gap-y-8 lg:grid-cols-[220px_minmax(0,1fr)]">
        <div className="space-y-8">
          <VersionList job={job.data} shown={number} />
          <ChangeHistory name={name} />
        </div>
        <VersionView
          against={against ?? Math.max(1, number - 1)}
          job={job.data}
          key={number}
          number={number}
        />
      </div>
    </div>
  );
}
