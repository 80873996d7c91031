import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useRef } from "react";
import { useSize } from "@/components/charts/use-size";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { GapNote } from "../gap-note";
import { metricsQuery, runEndedQuery } from "../queries";
import { Charts } from "./charts";
import { curveOf, inOrder } from "./series";
import { Toolbar } from "./toolbar";

const route = getRouteApi("/runs/$runId/throughput");
const LEAST_BUCKETS = 200;
const MOST_BUCKETS = 1200;

/** How fast does it go, and what does it learn? */
export function ThroughputTab() {
  const { runId } = route.useParams();
  const { x = "step", from, to, attempt } = route.useSearch();
  const box = useRef<HTMLDivElement>(null);
  const { width } = useSize(box);
  // A bucket per two pixels, in steps of 200, so that a small change of width asks for nothing new.
  const buckets = Math.min(MOST_BUCKETS, Math.max(LEAST_BUCKETS, Math.ceil(width / 400) * 200));
  const metrics = useQuery({ ...metricsQuery(runId, { x, from, to, attempt, buckets }), enabled: width > 0 });
  const ended = useQuery(runEndedQuery(runId)).data === true;
  const curves = useMemo(
    () => inOrder((metrics.data?.series ?? []).map((each) => curveOf(each, metrics.data?.gaps))),
    [metrics.data],
  );
  return (
    <div ref={box}>
      <GapNote runId={runId} what="metrics" />
      {metrics.data && metrics.error && <StaleBanner error={metrics.error} since={metrics.dataUpdatedAt} />}
      {!metrics.data && metrics.error && (
        <ErrorState
          error={metrics.error}
          onRetry={() => void metrics.refetch()}
          what="The metrics could not be loaded"
        />
      )}
      {!metrics.data && !metrics.error && <SkeletonRows label="the metrics" rows={8} />}
      {metrics.data && curves.length === 0 && (
        <EmptyState
          snippet={
            "for step, batch in enumerate(strategy.distribute_dataset(data)):\n    ...\n    run.log(step=step, loss=loss)"
          }
          title={ended ? "This run logged no metric." : "No metric logged yet."}
        >
          Speed is recorded by itself once steps run; the program adds its own with run.log.
        </EmptyState>
      )}
      {curves.length > 0 && (
        <>
          <Toolbar runId={runId} series={metrics.data?.series ?? []} />
          <Charts axis={x} curves={curves} />
        </>
      )}
    </div>
  );
}
