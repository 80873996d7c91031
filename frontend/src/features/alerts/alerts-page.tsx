import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { sessionQuery } from "@/api/queries";
import { Button } from "@/components/ui/button";
import { Section } from "@/components/ui/section";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { InBrowser } from "./in-browser";
import { webhooksQuery } from "./queries";
import { WebhookItem } from "./webhook";
import { NewWebhook } from "./webhook-dialogs";

const MAY_SEE = ["operator", "admin"];

/** Who is told of runs, and how? */
export function AlertsPage() {
  const { data: session } = useQuery(sessionQuery);
  return (
    <div className="space-y-8 px-4 py-5 lg:px-6">
      <h1 className="text-lg">Alerts</h1>
      <Section title="In this browser">
        <InBrowser />
      </Section>
      {session && MAY_SEE.includes(session.role) && <Webhooks />}
      {session && !MAY_SEE.includes(session.role) && (
        <Section title="Webhooks">
          <p className="py-3 text-muted">
            Addresses of webhooks may hold secrets: they are shown to operators and admins.
          </p>
        </Section>
      )}
    </div>
  );
}

function Webhooks() {
  const [adding, setAdding] = useState(false);
  const webhooks = useQuery(webhooksQuery);
  const rows = webhooks.data;
  const add = (
    <Button compact onClick={() => setAdding(true)}>
      Add a webhook
    </Button>
  );
  return (
    <Section aside={add} title="Webhooks">
      {webhooks.error && rows && <StaleBanner error={webhooks.error} since={webhooks.dataUpdatedAt} />}
      {!rows && webhooks.error && (
        <ErrorState
          error={webhooks.error}
          onRetry={() => void webhooks.refetch()}
          what="The webhooks could not be loaded"
        />
      )}
      {!rows && !webhooks.error && <SkeletonRows label="the webhooks" rows={2} />}
      {rows?.length === 0 && (
        <EmptyState title="No address is told of runs.">
          Add one, and a signed request is posted to it when a run ends, has its first NaN or stands still.
        </EmptyState>
      )}
      {rows && rows.length > 0 && (
        <ul>
          {rows.map((webhook) => (
            <WebhookItem key={webhook.id} webhook={webhook} />
          ))}
        </ul>
      )}
      {adding && <NewWebhook onClose={() => setAdding(false)} />}
    </Section>
  );
}
