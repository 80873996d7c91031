import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { Webhook } from "@/api/schema";
import { Age } from "@/components/runs/run-columns";
import { Button } from "@/components/ui/button";
import { ErrorState } from "@/components/ui/view-states";
import { count, formatUtc } from "@/lib/format";
import { Deliveries } from "./deliveries";
import { changeWebhook, deleteWebhook, testWebhook, webhooksQuery } from "./queries";
import { EditWebhook, ReplaceSecret } from "./webhook-dialogs";
import { wordOf } from "./words";

/** A webhook: where it posts, what it tells, how it fares, and what can be done with it. */
export function WebhookItem({ webhook }: { webhook: Webhook }) {
  const [open, setOpen] = useState(false);
  const [editing, setEditing] = useState(false);
  const [replacing, setReplacing] = useState(false);
  const act = useActs(webhook, () => setOpen(true));
  return (
    <li className="border-line border-b py-3 last:border-b-0" data-testid="webhook">
      <div className="flex flex-wrap items-baseline gap-x-3 gap-y-1">
        <h3 className="font-strong">{webhook.name}</h3>
        <State webhook={webhook} />
        <code className="min-w-0 break-all text-muted leading-4">{webhook.url}</code>
      </div>
      <p className="mt-1 text-muted">
        {webhook.alerts.map(wordOf).join(", ")}
        {webhook.job ? `; of ${webhook.job}` : "; of all jobs"}
        {webhook.waiting > 0 && `; ${count(webhook.waiting, "delivery", "deliveries")} waiting`}
        {webhook.old_secret_until && Date.parse(webhook.old_secret_until) > Date.now() && (
          <>; signed with the secret before too until {formatUtc(webhook.old_secret_until)}</>
        )}
      </p>
      {webhook.last_error && (
        <p className="mt-1 break-words text-bad">
          {webhook.last_error}{" "}
          <span className="text-muted">
            (<Age moment={webhook.last_error_at} />)
          </span>
        </p>
      )}
      <div className="mt-2 flex flex-wrap gap-2">
        <Button compact disabled={!webhook.enabled || act.test.isPending} onClick={() => act.test.mutate()}>
          Send a test
        </Button>
        <Button aria-expanded={open} compact onClick={() => setOpen(!open)}>
          {open ? "Hide deliveries" : "Deliveries"}
        </Button>
        <Button compact disabled={act.turn.isPending} onClick={() => act.turn.mutate()}>
          {webhook.enabled ? "Switch off" : "Switch on"}
        </Button>
        <Button compact onClick={() => setEditing(true)}>
          Edit
        </Button>
        <Button compact onClick={() => setReplacing(true)}>
          New secret…
        </Button>
        <Delete onDelete={() => act.remove.mutate()} pending={act.remove.isPending} />
      </div>
      {act.error ? <ErrorState error={act.error} what="That was refused" /> : null}
      {editing && <EditWebhook onClose={() => setEditing(false)} webhook={webhook} />}
      {replacing && <ReplaceSecret onClose={() => setReplacing(false)} webhook={webhook} />}
      {open && (
        <div className="mt-3">
          <Deliveries webhook={webhook.id} />
        </div>
      )}
    </li>
  );
}

function useActs(webhook: Webhook, onTest: () => void) {
  const client = useQueryClient();
  const onSuccess = () => client.invalidateQueries({ queryKey: webhooksQuery.queryKey });
  const test = useMutation({
    mutationFn: () => testWebhook(webhook.id),
    onSuccess: () => {
      onTest();
      return onSuccess();
    },
  });
  const turn = useMutation({
    mutationFn: () => changeWebhook(webhook.id, { enabled: !webhook.enabled }),
    onSuccess,
  });
  const remove = useMutation({ mutationFn: () => deleteWebhook(webhook.id), onSuccess });
  return { test, turn, remove, error: test.error ?? turn.error ?? remove.error };
}

function State({ webhook }: { webhook: Webhook }) {
  if (!webhook.enabled) return <span className="text-muted">Off</span>;
  if (webhook.failures > 0) return <span className="text-bad">Failing</span>;
  return <span className="text-ok">{webhook.delivered_at ? "Delivers" : "On"}</span>;
}

/** Asks once more in its own place. */
function Delete({ onDelete, pending }: { onDelete: () => void; pending: boolean }) {
  const [asked, setAsked] = useState(false);
  return (
    <Button
      compact
      disabled={pending}
      look="danger"
      onBlur={() => setAsked(false)}
      onClick={() => (asked ? onDelete() : setAsked(true))}
    >
      {asked ? "Delete it for good" : "Delete"}
    </Button>
  );
}
