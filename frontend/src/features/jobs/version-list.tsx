import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Job } from "@/api/schema";
import { Age } from "@/components/runs/run-columns";
import { Button } from "@/components/ui/button";
import { PrincipalName } from "@/components/ui/principal-name";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { count } from "@/lib/format";
import { versionsQuery } from "./queries";

/** The job's versions, newest first; each is a link to what it holds. */
export function VersionList({ job, shown }: { job: Job; shown: number }) {
  const versions = useInfiniteQuery(versionsQuery(job.name));
  const rows = versions.data?.pages.flatMap((page) => page.items);
  return (
    <Section title="Versions">
      {versions.error && <ErrorState error={versions.error} what="The versions could not be loaded" />}
      {!rows && !versions.error && <SkeletonRows label="versions" rows={4} />}
      <ul className="max-lg:max-h-48 max-lg:overflow-y-auto">
        {rows?.map((version) => (
          <li key={version.id}>
            <Link
              aria-current={version.number === shown ? "true" : undefined}
              className="flex min-h-10 items-center gap-2 border-line border-b px-2 py-1 hover:bg-hover aria-[current]:bg-accent-soft"
              params={{ name: job.name }}
              search={{ v: version.number }}
              to="/jobs/$name"
            >
              <span className="font-strong">v{version.number}</span>
              {version.number === job.current_version && <span className="text-xs">current</span>}
              <span className="ml-auto text-right text-muted text-xs leading-4">
                {version.runs === null ? "" : `${count(version.runs, "run")}, `}
                <Age moment={version.created_at} />
                <br />
                by <PrincipalName who={version.created_by} />
              </span>
            </Link>
          </li>
        ))}
      </ul>
      {versions.hasNextPage && (
        <Button className="mt-2" compact onClick={() => void versions.fetchNextPage()}>
          Older versions
        </Button>
      )}
    </Section>
  );
}
