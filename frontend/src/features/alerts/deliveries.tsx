import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { WebhookDelivery } from "@/api/schema";
import { Age } from "@/components/runs/run-columns";
import { type Column, DataTable } from "@/components/ui/data-table";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { formatInteger, shortId } from "@/lib/format";
import { deliveriesQuery } from "./queries";
import { STATES, wordOf } from "./words";

/** What was posted to a webhook lately, and what it failed of. */
export function Deliveries({ webhook }: { webhook: string }) {
  const deliveries = useQuery(deliveriesQuery(webhook));
  if (deliveries.error && !deliveries.data) {
    return <ErrorState error={deliveries.error} what="The deliveries could not be loaded" />;
  }
  if (!deliveries.data) return <SkeletonRows label="the deliveries" rows={2} />;
  if (deliveries.data.length === 0) return <p className="py-2 text-muted">Nothing was posted yet.</p>;
  return <DataTable columns={COLUMNS} label="Deliveries" rowKey={(row) => row.id} rows={deliveries.data} />;
}

const COLUMNS: Column<WebhookDelivery>[] = [
  {
    id: "state",
    header: "State",
    cell: ({ state }) => <span className={STATES[state].look}>{STATES[state].word}</span>,
  },
  { id: "alert", header: "Alert", cell: ({ alert }) => wordOf(alert) },
  {
    id: "run",
    header: "Run",
    cell: ({ run }) =>
      run && (
        <Link params={{ runId: run }} to="/runs/$runId">
          <code>{shortId(run)}</code>
        </Link>
      ),
  },
  { id: "tries", header: "Tries", align: "right", cell: ({ tries }) => formatInteger(tries) },
  {
    id: "error",
    header: "Last error",
    className: "w-full max-w-0 truncate max-sm:hidden",
    cell: ({ error }) => <span title={error}>{error}</span>,
  },
  { id: "age", header: "Age", align: "right", cell: ({ created_at }) => <Age moment={created_at} /> },
];
