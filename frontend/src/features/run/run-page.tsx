import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, Outlet } from "@tanstack/react-router";
import { isApiError } from "@/api/errors";
import { TabNav } from "@/components/ui/tab-nav";
import { ErrorState, Skeleton, StaleBanner } from "@/components/ui/view-states";
import { RunHeader } from "./header/run-header";
import { useLiveRun } from "./live";
import { type SteadyRun, steadyRunQuery } from "./queries";

const route = getRouteApi("/runs/$runId");

/** How is it going? The header stays; each tab answers its own question under it. */
export function RunPage() {
  const { runId } = route.useParams();
  const run = useQuery(steadyRunQuery(runId));
  if (!run.data) {
    return (
      <div className="px-4 py-5 lg:px-6">
        <h1 className="sr-only">Run</h1>
        {run.error ? (
          <ErrorState error={run.error} onRetry={() => void run.refetch()} what={whatFailed(run.error)}>
            <Link className="link" to="/runs">
              All runs
            </Link>
          </ErrorState>
        ) : (
          <HeaderSkeleton />
        )}
      </div>
    );
  }
  return (
    <div className="flex min-w-0 flex-1 flex-col px-4 py-5 lg:px-6">
      {run.error && <StaleBanner error={run.error} since={run.dataUpdatedAt} />}
      {/* The key starts a new subscription where the address moves on to another run. */}
      <LivePage key={runId} run={run.data} />
    </div>
  );
}

/** Whose address it is: of a run that was deleted the server says by whom and when. */
function whatFailed(error: unknown): string {
  const wasDeleted = isApiError(error) && "deleted_by" in error.context;
  return wasDeleted ? "This run was deleted" : "The run could not be loaded";
}

function LivePage({ run }: { run: SteadyRun }) {
  useLiveRun(run);
  const params = { runId: run.id };
  return (
    <>
      <RunHeader run={run} />
      <div className="mt-6 mb-5">
        <TabNav
          label="Views of this run"
          tabs={[
            { label: "Metrics", link: { to: "/runs/$runId/metrics", params } },
            { label: "Placement", link: { to: "/runs/$runId/placement", params } },
            { label: "Reductions", link: { to: "/runs/$runId/reductions", params } },
            { label: "Media", link: { to: "/runs/$runId/media", params } },
            { label: "Logs", link: { to: "/runs/$runId/logs", params } },
            { label: "Time", link: { to: "/runs/$runId/time", params } },
            ...(run.plan ? [{ label: "Plan", link: { to: "/runs/$runId/plan" as const, params } }] : []),
            { label: "Attempts", link: { to: "/runs/$runId/attempts", params } },
          ]}
        />
      </div>
      <Outlet />
    </>
  );
}

function HeaderSkeleton() {
  return (
    <div aria-busy="true" role="status">
      <span className="sr-only">Loading the run</span>
      <Skeleton className="mb-3 h-5 w-64" />
      <Skeleton className="mb-6 w-96" />
      <Skeleton className="mb-3 w-full" />
      <Skeleton className="w-72" />
    </div>
  );
}
