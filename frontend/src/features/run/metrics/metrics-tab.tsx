import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState } from "react";
import type { MetricGroups } from "@/api/schema";
import { ChartMenus } from "@/components/metrics/chart-menu";
import { domainWithin, type Ends, useDomainStore, useEnds } from "@/components/metrics/domain";
import { parseSpecs, toggled } from "@/components/metrics/view";
import { PickedPlace } from "@/components/metrics/view-controls";
import { formatOf } from "@/components/metrics/x-axis";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { formatInteger } from "@/lib/format";
import { usePageWidth } from "@/lib/page-width";
import { GapNote } from "../gap-note";
import { metricGroupsQuery, runEndedQuery } from "../queries";
import { rangeOf } from "./curves";
import { columnsOf, Fold, Grid, MetricGroup, type Shared } from "./group";
import { useMarkers } from "./markers";
import { opensByItself } from "./opening";
import { Toolbar } from "./toolbar";

const route = getRouteApi("/runs/$runId/metrics");
const SNIPPET =
  "for step, batch in enumerate(strategy.distribute_dataset(data)):\n    ...\n    run.log(step=step, loss=loss)";

/** What does it learn, and how fast? */
export function MetricsTab() {
  const { runId } = route.useParams();
  const { q } = route.useSearch();
  const ended = useQuery(runEndedQuery(runId)).data === true;
  const groups = useQuery(metricGroupsQuery(runId, q, ended));
  const none = groups.data?.total === 0 && !q;
  return (
    <div>
      <GapNote runId={runId} what="metrics" />
      {groups.data && groups.error && <StaleBanner error={groups.error} since={groups.dataUpdatedAt} />}
      {!groups.data && groups.error && (
        <ErrorState
          error={groups.error}
          onRetry={() => void groups.refetch()}
          what="The metrics could not be loaded"
        />
      )}
      {!groups.data && !groups.error && <SkeletonRows label="the metrics" rows={8} />}
      {none && (
        <EmptyState snippet={SNIPPET} title={ended ? "This run logged no metric." : "No metric logged yet."}>
          Speed is recorded by itself once steps run; the program adds its own with run.log.
        </EmptyState>
      )}
      {groups.data && !none && <Charts groups={groups.data} runId={runId} />}
    </div>
  );
}

function Charts({ runId, groups }: { runId: string; groups: MetricGroups }) {
  const view = route.useSearch();
  const navigate = route.useNavigate();
  const { x = "step", from, to, attempt, pin } = view;
  const change = useCallback(
    (next: typeof view) =>
      void navigate({ search: (old) => ({ ...old, ...next }), replace: true, resetScroll: false }),
    [navigate],
  );
  const { first_step: first, last_step: last } = groups;
  const ends = useMemo<Ends | null>(
    () => (x === "step" && !attempt && first != null && last != null ? [first, last] : null),
    [x, attempt, first, last],
  );
  const store = useDomainStore(`${runId} ${x === "step" ? x : "time"} ${attempt ?? ""}`, ends);
  useEffect(() => {
    if (ends) store.cover(ends);
  }, [store, ends]);
  const [zero, setZero] = useState<number | null>(null);
  const markers = useMarkers(runId, x, zero);
  const shownDomain = domainWithin(useEnds(store), from, to);
  const formatX = formatOf(x, zero, shownDomain);
  const { buckets } = rangeOf(view, usePageWidth());
  const shared = useMemo<Shared>(
    () => ({ range: { x, from, to, attempt, buckets }, domain: store, markers, onZero: setZero }),
    [x, from, to, attempt, buckets, store, markers],
  );
  const pins = useMemo(() => parseSpecs(pin), [pin]);
  return (
    <>
      <Toolbar change={change} formatX={formatX} groups={groups} runId={runId} />
      {view.at !== undefined && (
        <PickedPlace
          at={view.at}
          axis={x}
          formatX={formatX}
          onClose={() => change({ at: undefined })}
          runs={[{ id: runId, label: "this run" }]}
        />
      )}
      <div className="grid gap-8 md:grid-cols-2 xl:grid-cols-3">
        {pins.length > 0 && (
          <Fold
            note="kept in this address"
            onToggle={undefined}
            open
            title="Pinned"
            wide={view.wide ? 3 : columnsOf(pins.length)}
          >
            <Grid shared={shared} specs={pins} />
          </Fold>
        )}
        <Groups change={change} groups={groups} shared={shared} />
      </div>
      <ChartMenus />
    </>
  );
}

interface GroupsProps {
  groups: MetricGroups;
  shared: Shared;
  change: (next: ReturnType<typeof route.useSearch>) => void;
}

function Groups({ groups, shared, change }: GroupsProps) {
  const { q, open, shut } = route.useSearch();
  const named = (text: string | undefined, key: string) => parseSpecs(text).some(([one]) => one === key);
  const byItself = opensByItself(groups.groups);
  return (
    <>
      {groups.groups.map(({ group, names }) => {
        const key = group || "-";
        const usual = byItself.has(group);
        const isOpen = usual ? !named(shut, key) : named(open, key);
        return (
          <MetricGroup
            group={group}
            key={key}
            names={names}
            onToggle={() => change(usual ? { shut: toggled(shut, [key]) } : { open: toggled(open, [key]) })}
            open={isOpen}
            shared={shared}
          />
        );
      })}
      {groups.total === 0 && q && <p className="text-muted">No metric has “{q}” in its name.</p>}
      {!groups.complete && (
        <p className="text-warn" role="status">
          The run has more than {formatInteger(groups.total)} metrics; these are the first. Search by name to
          reach the others.
        </p>
      )}
    </>
  );
}
