import type { AlertKind, WebhookDelivery } from "@/api/schema";

/** Alerts in the order of a run's life, as the page calls them. */
export const ALERTS: readonly { kind: AlertKind; word: string }[] = [
  { kind: "run.succeeded", word: "Succeeded" },
  { kind: "run.failed", word: "Failed" },
  { kind: "run.cancelled", word: "Cancelled" },
  { kind: "run.non_finite", word: "First NaN or infinity" },
  { kind: "run.stalled", word: "Stalled" },
];

export function wordOf(alert: WebhookDelivery["alert"]): string {
  return ALERTS.find(({ kind }) => kind === alert)?.word ?? "Test";
}

export const STATES: Readonly<Record<WebhookDelivery["state"], { word: string; look: string }>> = {
  waiting: { word: "Waiting", look: "text-muted" },
  delivered: { word: "Delivered", look: "text-ok" },
  given_up: { word: "Given up", look: "text-bad" },
};
