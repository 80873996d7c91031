import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { isApiError } from "@/api/errors";
import { keys, runsQuery } from "@/api/queries";
import type { Job, JobVersion } from "@/api/schema";
import { RUN_COLUMNS } from "@/components/runs/run-columns";
import { Button, buttonClass } from "@/components/ui/button";
import { DataTable } from "@/components/ui/data-table";
import { Facts } from "@/components/ui/facts";
import { StrategyMark } from "@/components/ui/glyphs";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { formatUtc } from "@/lib/format";
import { rollBack, versionQuery } from "./queries";
import { VersionDiff } from "./version-diff";

const { state, job: run, replicas, progress, duration, created } = RUN_COLUMNS;
const COLUMNS = [state, run, replicas, progress, duration, created];
const SHOWN_RUNS = 10;

/** One version: what it holds, what changed in it, and its runs. */
export function VersionView({ job, number, against }: { job: Job; number: number; against: number }) {
  const version = useQuery(versionQuery(job.name, number));
  if (!version.data) {
    return version.error ? (
      <ErrorState error={version.error} what={`Version ${number} could not be loaded`} />
    ) : (
      <SkeletonRows label="the version" />
    );
  }
  return (
    <div className="min-w-0 space-y-8">
      <Section
        aside={
          <>
            <Link className={buttonClass("plain", true)} search={{ job: job.name, v: number }} to="/submit">
              Edit and run
            </Link>
            {number !== job.current_version && <MakeCurrent job={job} number={number} />}
          </>
        }
        note={number === job.current_version ? "current: what runs when the job is run by name" : undefined}
        title={`Version ${number}`}
      >
        <Specification version={version.data} />
      </Section>
      <VersionDiff against={against} job={job} number={number} />
      <Runs job={job.name} version={number} />
    </div>
  );
}

function Specification({ version }: { version: JobVersion }) {
  const { kind: _, ...options } = version.strategy;
  const changed = Object.entries(options).filter(([, value]) => value !== null && value !== "auto");
  return (
    <div className="pt-3 text-xs">
      <Facts
        facts={[
          ["Strategy", <StrategyMark key="strategy" kind={version.strategy.kind} />],
          ["Entrypoint", <code key="entrypoint">{version.program.entrypoint}</code>],
          [
            "Options",
            changed.length === 0 ? (
              "none"
            ) : (
              <code key="options">
                {changed.map(([name, value]) => `${name}=${String(value)}`).join("  ")}
              </code>
            ),
          ],
          ["Content", <code key="content">{version.content_hash.slice(0, 19)}</code>],
          ["Made", formatUtc(version.created_at)],
        ]}
      />
    </div>
  );
}

function MakeCurrent({ job, number }: { job: Job; number: number }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  const move = useMutation({
    mutationFn: () => rollBack(job.name, number),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.jobs }),
    onSettled: () => setAsking(false),
  });
  if (!asking) {
    return (
      <>
        {move.error && (
          <span className="text-bad text-xs" role="alert">
            {isApiError(move.error) ? move.error.message : "It could not be made current."}
          </span>
        )}
        <Button compact onClick={() => setAsking(true)}>
          {number < job.current_version ? "Roll back to it" : "Make current"}
        </Button>
      </>
    );
  }
  return (
    <>
      <span>
        Make v{number} current instead of v{job.current_version}?
      </span>
      <Button autoFocus compact disabled={move.isPending} look="primary" onClick={() => move.mutate()}>
        Make it current
      </Button>
      <Button compact look="quiet" onClick={() => setAsking(false)}>
        No
      </Button>
    </>
  );
}

function Runs({ job, version }: { job: string; version: number }) {
  const runs = useInfiniteQuery(runsQuery({ job, version }, SHOWN_RUNS));
  const rows = runs.data?.pages.flatMap((page) => page.items);
  return (
    <Section
      aside={
        <Link className="link text-xs" search={{ q: `job:${job} version:${version}` }} to="/runs">
          Open in Runs
        </Link>
      }
      title="Runs of this version"
    >
      {runs.error && !rows && <ErrorState error={runs.error} what="Its runs could not be loaded" />}
      {rows?.length === 0 && <p className="pt-3 text-muted">None yet.</p>}
      {rows && rows.length > 0 && (
        <DataTable
          columns={COLUMNS}
          label="Runs of this version"
          rowKey={(row) => row.id}
          rows={rows}
          twoLines
        />
      )}
      {runs.hasNextPage && (
        <Button className="mt-3" compact onClick={() => void runs.fetchNextPage()}>
          Load more
        </Button>
      )}
    </Section>
  );
}
