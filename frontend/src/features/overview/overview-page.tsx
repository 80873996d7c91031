import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { keys, overviewQuery } from "@/api/queries";
import type { Overview } from "@/api/schema";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { classNames } from "@/lib/class-names";
import { useLiveList } from "@/lib/live";
import { Attention } from "./attention";
import { FleetStrip } from "./fleet-strip";
import { Queue } from "./queue";
import { FirstRun, RecentRuns, RunningRuns } from "./run-lists";
import { overviewSentence } from "./sentence";

/** Is anything wrong, and is the fleet busy? */
export function OverviewPage() {
  useLiveList("fleet", [keys.overview]);
  useLiveList("runs", [keys.overview]);
  const overview = useQuery(overviewQuery);
  if (overview.data) {
    return (
      <Page title={overviewSentence(overview.data)}>
        {overview.error && <StaleBanner error={overview.error} since={overview.dataUpdatedAt} />}
        <Parts overview={overview.data} stale={overview.error !== null} />
      </Page>
    );
  }
  return (
    <Page title="Overview">
      {overview.error ? (
        <ErrorState
          error={overview.error}
          onRetry={() => void overview.refetch()}
          what="The overview could not be loaded"
        />
      ) : (
        <Waiting />
      )}
    </Page>
  );
}

function Page({ title, children }: { title: string; children: ReactNode }) {
  return (
    <div className="px-4 py-5 lg:px-6">
      <h1 className="mb-5 text-lg">{title}</h1>
      {children}
    </div>
  );
}

function Parts({ overview, stale }: { overview: Overview; stale: boolean }) {
  const nothingYet = overview.running.length + overview.recent.length + overview.queued.length === 0;
  return (
    <div
      className={classNames(
        "grid gap-x-10 gap-y-8 xl:grid-cols-[minmax(0,7fr)_minmax(0,5fr)]",
        stale && "opacity-70",
      )}
    >
      <Attention className="xl:col-span-2" overview={overview} />
      <FleetStrip overview={overview} />
      <Queue overview={overview} />
      {nothingYet ? (
        <FirstRun className="xl:col-span-2" />
      ) : (
        <>
          <RunningRuns className="xl:col-span-2" overview={overview} />
          <RecentRuns className="xl:col-span-2" overview={overview} />
        </>
      )}
    </div>
  );
}

/** The page's own shape, before its answer. */
function Waiting() {
  return (
    <div className="grid gap-x-10 gap-y-8 xl:grid-cols-[minmax(0,7fr)_minmax(0,5fr)]">
      <Section title="Fleet">
        <SkeletonRows label="the fleet" rows={3} />
      </Section>
      <Section title="Queue">
        <SkeletonRows label="the queue" rows={3} />
      </Section>
      <Section className="xl:col-span-2" title="Running">
        <SkeletonRows label="running runs" rows={3} />
      </Section>
      <Section className="xl:col-span-2" title="Recent">
        <SkeletonRows label="recent runs" rows={6} />
      </Section>
    </div>
  );
}
