import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import type { AlertKind, Webhook } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
import { Dialog } from "@/components/ui/dialog";
import { ErrorState } from "@/components/ui/view-states";
import { changeWebhook, makeWebhook, replaceSecret, webhooksQuery } from "./queries";
import { ALERTS } from "./words";

const TOLD_AT_FIRST: readonly AlertKind[] = ["run.failed", "run.non_finite", "run.stalled"];
const INPUT = "h-8 w-full rounded-control border border-line-strong bg-bg px-2";

/** Asks for an address, and shows the secret once. */
export function NewWebhook({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const made = useMutation({
    mutationFn: makeWebhook,
    onSuccess: () => client.invalidateQueries(webhooksQuery),
  });
  return (
    <Dialog onClose={onClose} open title={made.data ? made.data.name : "Add a webhook"}>
      {made.data ? (
        <Secret onClose={onClose} secret={made.data.secret} />
      ) : (
        <Form
          error={made.error}
          onSubmit={({ job, ...rest }) => made.mutate({ ...rest, job: job || null })}
          pending={made.isPending}
          refusal="The webhook was not made"
          verb="Add the webhook"
        />
      )}
    </Dialog>
  );
}

/** Changes where a webhook posts and what it tells; its secret and deliveries stay. */
export function EditWebhook({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const client = useQueryClient();
  const changed = useMutation({
    mutationFn: (change: Chosen) => changeWebhook(webhook.id, change),
    onSuccess: async () => {
      await client.invalidateQueries(webhooksQuery);
      onClose();
    },
  });
  return (
    <Dialog onClose={onClose} open title={`Edit ${webhook.name}`}>
      <Form
        error={changed.error}
        first={webhook}
        onSubmit={changed.mutate}
        pending={changed.isPending}
        refusal="The webhook was not changed"
        verb="Save the changes"
      />
    </Dialog>
  );
}

/** Asks before it replaces the secret, and shows the new one once. */
export function ReplaceSecret({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const client = useQueryClient();
  const made = useMutation({
    mutationFn: () => replaceSecret(webhook.id),
    onSuccess: () => client.invalidateQueries(webhooksQuery),
  });
  return (
    <Dialog onClose={onClose} open title={`Secret of ${webhook.name}`}>
      {made.data ? (
        <Secret onClose={onClose} secret={made.data.secret} />
      ) : (
        <div className="space-y-4 p-4">
          <p>
            A new secret takes the place of the one there is. For a day posts are signed with both, so that
            the receiver can change over.
          </p>
          {made.error ? <ErrorState error={made.error} what="The secret was not replaced" /> : null}
          <Button disabled={made.isPending} look="primary" onClick={() => made.mutate()}>
            Make a new secret
          </Button>
        </div>
      )}
    </Dialog>
  );
}

/** An empty job stands for all. */
interface Chosen {
  name: string;
  url: string;
  alerts: AlertKind[];
  job: string;
}

interface FormProps {
  first?: Webhook;
  onSubmit: (chosen: Chosen) => void;
  verb: string;
  refusal: string;
  pending: boolean;
  error: unknown;
}

function Form({ first, onSubmit, verb, refusal, pending, error }: FormProps) {
  const [name, setName] = useState(first?.name ?? "");
  const [url, setUrl] = useState(first?.url ?? "");
  const [job, setJob] = useState(first?.job ?? "");
  const [alerts, setAlerts] = useState<readonly AlertKind[]>(first?.alerts ?? TOLD_AT_FIRST);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const told = ALERTS.map(({ kind }) => kind).filter((kind) => alerts.includes(kind));
    onSubmit({ name, url, alerts: told, job });
  };
  return (
    <form className="space-y-4 p-4" onSubmit={submit}>
      <Field label="Name">
        <input
          className={INPUT}
          maxLength={100}
          onChange={(event) => setName(event.target.value)}
          required
          value={name}
        />
      </Field>
      <Field label="Address">
        <input
          className={INPUT}
          maxLength={2_000}
          onChange={(event) => setUrl(event.target.value)}
          placeholder="https://hooks.example/drumline"
          required
          type="url"
          value={url}
        />
      </Field>
      <fieldset>
        <legend className="mb-1 text-muted">Tell of runs that are</legend>
        {ALERTS.map(({ kind, word }) => (
          <label className="flex min-h-7 items-center gap-2" key={kind}>
            <input
              checked={alerts.includes(kind)}
              onChange={(event) =>
                setAlerts(event.target.checked ? [...alerts, kind] : alerts.filter((one) => one !== kind))
              }
              type="checkbox"
            />
            {word}
          </label>
        ))}
      </fieldset>
      <Field label="Only of the job (empty: of all)">
        <input
          className={INPUT}
          maxLength={63}
          onChange={(event) => setJob(event.target.value)}
          value={job}
        />
      </Field>
      {error ? <ErrorState error={error} what={refusal} /> : null}
      <Button disabled={pending || alerts.length === 0} look="primary" type="submit">
        {verb}
      </Button>
    </form>
  );
}

function Field({ label, children }: { label: string; children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is the child
    <label className="block">
      <span className="mb-1 block text-muted">{label}</span>
      {children}
    </label>
  );
}

function Secret({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <div className="space-y-4 p-4">
      <p>Posts are signed with this secret. It is shown now and never again.</p>
      <div className="flex items-start gap-2 rounded-control border border-line bg-raised p-3">
        <code className="min-w-0 flex-1 break-all" data-testid="webhook-secret">
          {secret}
        </code>
        <CopyButton bare label="Copy the secret" text={secret} />
      </div>
      <Button look="primary" onClick={onClose}>
        Done
      </Button>
    </div>
  );
}
