import { useInfiniteQuery } from "@tanstack/react-query";
import type { Artifact } from "@/api/schema";
import { Button, buttonClass } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Section } from "@/components/ui/section";
import { StateBadge } from "@/components/ui/state-badge";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { count, formatBytes, formatTime } from "@/lib/format";
import { useNow } from "@/lib/now";
import { GapNote } from "../gap-note";
import { artifactAddress, artifactsQuery } from "./queries";

interface ArtifactsProps {
  runId: string;
  attempt: string | undefined;
}

const DIGITS = 12;

/** Which files does it keep, and are they there? */
export function Artifacts({ runId, attempt }: ArtifactsProps) {
  const pages = useInfiniteQuery(artifactsQuery(runId, attempt));
  const rows = pages.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <Section note={rows.length > 0 && "newest first"} title="Artifacts">
      <div className="pt-2 empty:hidden">
        <GapNote runId={runId} what="artifact" />
      </div>
      {pages.error && !pages.data && (
        <ErrorState
          error={pages.error}
          onRetry={() => void pages.refetch()}
          what="The artifacts could not be loaded"
        />
      )}
      {pages.error && pages.data && <StaleBanner error={pages.error} since={pages.dataUpdatedAt} />}
      {pages.isPending && <SkeletonRows label="the artifacts" rows={2} />}
      {pages.data && rows.length === 0 && (
        <EmptyState snippet={'run.save_artifact("export", kind="model")'} title="No file is kept.">
          Files and directories that the program keeps with its run are listed here.
        </EmptyState>
      )}
      {rows.length > 0 && <ArtifactTable rows={rows} runId={runId} />}
      {pages.hasNextPage && (
        <Button
          className="mt-3"
          compact
          disabled={pages.isFetching}
          onClick={() => void pages.fetchNextPage()}
        >
          Show more
        </Button>
      )}
    </Section>
  );
}

function ArtifactTable({ rows, runId }: { rows: readonly Artifact[]; runId: string }) {
  const now = useNow();
  const columns: Column<Artifact>[] = [
    { id: "name", header: "Name", cell: (row) => <Name row={row} /> },
    { id: "kind", header: "Kind", cell: (row) => row.kind ?? "–" },
    { id: "size", header: "Size", align: "right", cell: (row) => formatBytes(row.size_bytes) },
    { id: "state", header: "State", cell: (row) => <State row={row} /> },
    { id: "saved", header: "Kept", cell: (row) => formatTime(row.at, now) },
    { id: "where", header: "By", cell: (row) => `${row.host_name}, rank ${row.rank}` },
    { id: "digest", header: "SHA-256", className: "w-full", cell: (row) => <Digest sha256={row.sha256} /> },
    {
      id: "file",
      header: <span className="sr-only">Download</span>,
      cell: (row) =>
        row.state === "STORED" && (
          <a
            aria-label={`Download ${row.name}`}
            className={buttonClass("plain", true)}
            download
            href={artifactAddress(runId, row.id)}
          >
            Download
          </a>
        ),
    },
  ];
  return (
    <div className="whitespace-nowrap" data-testid="artifacts">
      <DataTable columns={columns} label="Artifacts" rowKey={(row) => row.id} rows={rows} />
    </div>
  );
}

function Name({ row }: { row: Artifact }) {
  const about = Object.entries(row.metadata ?? {}).map(([name, value]) => `${name}: ${value}`);
  return (
    <span className="flex items-baseline gap-2" title={[row.name, ...about].join("\n")}>
      <bdi className="max-w-72 truncate">{row.name}</bdi>
      {row.is_directory && <span className="text-muted text-xs">{count(row.files, "file")}</span>}
    </span>
  );
}

function State({ row }: { row: Artifact }) {
  const share = Math.floor((100 * row.received_bytes) / Math.max(1, row.size_bytes));
  return (
    <span className="flex items-baseline gap-2">
      <StateBadge state={row.state} />
      {row.state === "ARRIVING" && <span className="text-muted text-xs tabular-nums">{share} %</span>}
      {row.reason && (
        <span className="max-w-80 truncate text-muted text-xs" title={row.reason}>
          {row.reason}
        </span>
      )}
    </span>
  );
}

function Digest({ sha256 }: { sha256: string }) {
  const digits = sha256.replace("sha256:", "");
  return (
    <span className="flex items-center gap-1">
      <code className="text-xs">{digits.slice(0, DIGITS)}</code>
      <CopyButton bare label="Copy the SHA-256" text={digits} />
    </span>
  );
}
