import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { attemptsQuery } from "../queries";
import { AttemptTable } from "./attempt-table";
import { Checkpoints } from "./checkpoints";

const route = getRouteApi("/runs/$runId/attempts");

/** How often was it tried, and from where does it resume? */
export function AttemptsTab() {
  const { runId } = route.useParams();
  const attempts = useQuery(attemptsQuery(runId));
  if (!attempts.data) {
    return attempts.error ? (
      <ErrorState
        error={attempts.error}
        onRetry={() => void attempts.refetch()}
        what="The attempts could not be loaded"
      />
    ) : (
      <SkeletonRows label="the attempts" rows={4} />
    );
  }
  return (
    <div className="space-y-8">
      {attempts.error && <StaleBanner error={attempts.error} since={attempts.dataUpdatedAt} />}
      {attempts.data.length === 0 ? (
        <EmptyState title="No attempt yet.">The first begins when the run gets its devices.</EmptyState>
      ) : (
        <AttemptTable attempts={attempts.data} runId={runId} />
      )}
      <Checkpoints attempts={attempts.data} runId={runId} />
    </div>
  );
}
