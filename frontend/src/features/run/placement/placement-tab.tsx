import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { hostsQuery } from "@/api/queries";
import { isTerminal } from "@/api/states";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { attemptsQuery, placementQuery, steadyRunQuery } from "../queries";
import { NotPlaced } from "./not-placed";
import { PlacementView } from "./placement-view";

const route = getRouteApi("/runs/$runId/placement");

/** Which replica is where, and is it well? */
export function PlacementTab() {
  const { runId } = route.useParams();
  const run = useQuery(steadyRunQuery(runId));
  const placement = useQuery(placementQuery(runId));
  const attempts = useQuery(attemptsQuery(runId));
  const hosts = useQuery(hostsQuery);
  // The engine reports the class of its strategy; the run knows the kind that the drawings go by.
  const placed = useMemo(
    () => placement.data && run.data && { ...placement.data, strategy: run.data.strategy },
    [placement.data, run.data],
  );
  if (!placed || !run.data) {
    if (placement.error) {
      return (
        <ErrorState
          error={placement.error}
          onRetry={() => void placement.refetch()}
          what="The placement could not be loaded"
        />
      );
    }
    return <SkeletonRows label="the placement" rows={6} />;
  }
  if (placed.devices.length === 0) return <NotPlaced run={run.data} />;
  const attempt = attempts.data?.find((each) => each.id === placed.attempt);
  const scene = {
    placement: placed,
    attempt,
    hosts: hosts.data ?? [],
    ended: isTerminal(run.data.state),
  };
  return (
    <>
      {placement.error && <StaleBanner error={placement.error} since={placement.dataUpdatedAt} />}
      <PlacementView scene={scene} />
    </>
  );
}
