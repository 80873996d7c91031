import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { attemptsQuery, steadyRunQuery } from "../queries";
import { LogViewer } from "./log-viewer";

const route = getRouteApi("/runs/$runId/logs");

/** What did the program write? */
export function LogsTab() {
  const { runId } = route.useParams();
  const { attempt, member } = route.useSearch();
  const run = useQuery(steadyRunQuery(runId));
  const attempts = useQuery(attemptsQuery(runId));
  if (!run.data) {
    return run.error ? (
      <ErrorState error={run.error} onRetry={() => void run.refetch()} what="The log could not be loaded" />
    ) : (
      <SkeletonRows label="the log" rows={10} />
    );
  }
  return (
    <LogViewer
      attempt={attempt}
      attempts={attempts.data ?? []}
      // Another member's output has its own bytes and lines: the viewer starts over.
      key={`${attempt ?? ""}/${member ?? ""}`}
      member={member}
      run={run.data}
    />
  );
}
