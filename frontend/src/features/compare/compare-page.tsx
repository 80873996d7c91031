import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { isTerminal } from "@/api/states";
import { Segmented } from "@/components/ui/segmented";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { count, formatInteger } from "@/lib/format";
import { useAtRest } from "@/lib/idle";
import { Charts } from "./charts";
import { MOST_LINES } from "./drawn";
import { Legend } from "./legend";
import { type Compared, comparedOf } from "./model";
import { Outcomes } from "./outcomes";
import { Placements } from "./placements";
import { batchRunsQuery, detailsQuery, MOST_RUNS } from "./queries";
import { type CompareSearch, parseRuns } from "./search";
import { SideBySide } from "./side-by-side";

const route = getRouteApi("/compare");
const LIVE_MS = 5_000;

/** Why is one different from another? */
export function ComparePage() {
  const { runs, batch } = route.useSearch();
  const named = parseRuns(runs);
  const ofBatch = useQuery({
    ...batchRunsQuery(batch ?? ""),
    enabled: batch !== undefined && named.length === 0,
  });
  const all = named.length > 0 ? named : (ofBatch.data?.ids ?? []);
  const total = named.length > 0 ? named.length : (ofBatch.data?.total ?? 0);
  const key = all.slice(0, MOST_RUNS).join();
  const ids = useMemo(() => (key ? key.split(",") : []), [key]);
  return (
    <div className="space-y-7 px-4 py-5 lg:px-6">
      <header>
        <h1 className="text-lg">Compare</h1>
        {total > 0 && (
          <p className="mt-1 text-muted">
            {count(ids.length, "run")}
            {total > ids.length && ` of ${formatInteger(total)}: more are not compared at once`}
            {batch && named.length === 0 && (
              <>
                {" of "}
                <Link className="link" params={{ batchId: batch }} to="/batches/$batchId">
                  a sweep
                </Link>
              </>
            )}
          </p>
        )}
      </header>
      {ofBatch.error && <ErrorState error={ofBatch.error} what="The sweep could not be loaded" />}
      {ids.length === 0 &&
        !ofBatch.error &&
        (ofBatch.isFetching ? <SkeletonRows label="the sweep" /> : <Nothing />)}
      {ids.length > 0 && <Comparison ids={ids} />}
    </div>
  );
}

function Nothing() {
  return (
    <EmptyState title="No runs are chosen.">
      Select runs on the{" "}
      <Link className="link" to="/runs">
        Runs
      </Link>{" "}
      page, open a{" "}
      <Link className="link" to="/batches">
        sweep
      </Link>{" "}
      and compare its runs, or name them in the address: /compare?runs=run_…,run_…
    </EmptyState>
  );
}

function Comparison({ ids }: { ids: readonly string[] }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const details = useQuery({
    ...detailsQuery(ids),
    refetchInterval: ({ state }) => (state.data?.every((run) => isTerminal(run.state)) ? false : LIVE_MS),
  });
  const change = useCallback(
    (next: Partial<CompareSearch>) =>
      void navigate({ search: (old) => ({ ...old, ...next }), replace: true, resetScroll: false }),
    [navigate],
  );
  const { hide, draw, base } = search;
  const compared = useMemo(
    () => comparedOf(ids, details.data ?? [], { hide, draw, base }),
    [ids, details.data, hide, draw, base],
  );
  if (!details.data && details.error)
    return (
      <ErrorState
        error={details.error}
        onRetry={() => void details.refetch()}
        what="The runs could not be loaded"
      />
    );
  const live = details.data?.some((run) => !isTerminal(run.state)) === true;
  return (
    <>
      {details.data && details.error && <StaleBanner error={details.error} since={details.dataUpdatedAt} />}
      <Legend change={change} compared={compared} search={search} />
      {ids.length > MOST_LINES && (
        <p className="text-muted" role="status">
          Of {formatInteger(ids.length)} runs the band from the 10th to the 90th of 100 and their median are
          drawn, with the base and those that are chosen above.
        </p>
      )}
      <Charts change={change} compared={compared} ids={ids} live={live} />
      {details.data ? (
        <Tables change={change} compared={compared} />
      ) : (
        <SkeletonRows label="the runs" rows={8} />
      )}
    </>
  );
}

interface TablesProps {
  compared: readonly Compared[];
  change: (next: Partial<CompareSearch>) => void;
}

/** What is below the charts is worked out when the browser is idle: of many runs it takes longer than they do. */
function Tables({ compared: newest, change }: TablesProps) {
  const { same } = route.useSearch();
  const compared = useAtRest(newest);
  if (!compared) return <SkeletonRows label="the tables" rows={12} />;
  return (
    <>
      <Outcomes change={change} compared={compared} />
      <SideBySide
        aside={
          <Segmented
            choices={[
              { value: "differences", label: "Differences" },
              { value: "all", label: "All rows" },
            ]}
            label=""
            onChange={(value) => change({ same: value === "all" ? true : undefined })}
            value={same ? "all" : "differences"}
          />
        }
        compared={compared}
        same={same === true}
      />
      <Placements compared={compared} />
    </>
  );
}
