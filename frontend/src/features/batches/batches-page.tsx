import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { keys } from "@/api/queries";
import type { Batch } from "@/api/schema";
import { Age } from "@/components/runs/run-columns";
import { Button } from "@/components/ui/button";
import { type Column, DataTable } from "@/components/ui/data-table";
import { PrincipalName } from "@/components/ui/principal-name";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { formatInteger, shortId } from "@/lib/format";
import { useLiveList } from "@/lib/live";
import { batchesQuery } from "./queries";
import { BatchStates } from "./states";

const SNIPPET = "drumline sweep digits.py --sweep learning_rate=0.1,0.01 --sweep epochs=5,10";

const COLUMNS: readonly Column<Batch>[] = [
  {
    id: "name",
    header: "Sweep",
    cell: (batch) => (
      <Link
        className="inline-flex items-center gap-2 hover:underline"
        params={{ batchId: batch.id }}
        to="/batches/$batchId"
      >
        <span className="max-w-60 truncate font-strong">{batch.name || batch.jobs.join(", ")}</span>
        <code className="text-muted">{shortId(batch.id)}</code>
      </Link>
    ),
  },
  {
    id: "kind",
    header: "Kind",
    cell: (batch) => batch.sweep?.kind ?? "batch",
    className: "max-md:hidden",
  },
  {
    id: "owner",
    header: "Owner",
    cell: (batch) => <PrincipalName who={batch.owner} />,
    className: "max-md:hidden",
  },
  { id: "size", header: "Runs", cell: (batch) => formatInteger(batch.size), align: "right" },
  {
    id: "states",
    header: "States",
    cell: (batch) => <BatchStates batch={batch} />,
    className: "w-full pl-8! max-sm:hidden",
  },
  { id: "created", header: "Created", cell: (batch) => <Age moment={batch.created_at} />, align: "right" },
];

/** Every sweep and batch, newest first. */
export function BatchesPage() {
  useLiveList("runs", [keys.batches]);
  const navigate = useNavigate();
  const batches = useInfiniteQuery(batchesQuery);
  const rows = batches.data?.pages.flatMap((page) => page.items);
  return (
    <div className="px-4 py-5 lg:px-6">
      <h1 className="sr-only">Sweeps</h1>
      {batches.error && rows && <StaleBanner error={batches.error} since={batches.dataUpdatedAt} />}
      {rows ? (
        rows.length === 0 ? (
          <EmptyState snippet={SNIPPET} title="Nothing has been swept yet.">
            A sweep runs a program once for each combination of parameters, and puts the outcomes into one
            table.
          </EmptyState>
        ) : (
          <DataTable
            columns={COLUMNS}
            keyboard
            label="Sweeps"
            onRowClick={(batch) => void navigate({ to: "/batches/$batchId", params: { batchId: batch.id } })}
            rowKey={(batch) => batch.id}
            rows={rows}
          />
        )
      ) : batches.error ? (
        <ErrorState
          error={batches.error}
          onRetry={() => void batches.refetch()}
          what="The sweeps could not be loaded"
        />
      ) : (
        <SkeletonRows label="sweeps" rows={8} />
      )}
      {batches.hasNextPage && (
        <Button className="mt-3" compact onClick={() => void batches.fetchNextPage()}>
          Load more
        </Button>
      )}
    </div>
  );
}
