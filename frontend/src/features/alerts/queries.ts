import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { WebhookCreate, WebhookPatch } from "@/api/schema";

const MOST = 200;
const LATEST = 20;
const ALL = ["webhooks"] as const;
/** How long posts are signed with a secret that was replaced too: a day. */
const KEEP_OLD_S = 86_400;
/** While something waits for its next try, what came of it is asked again. */
const AGAIN_MS = 2_000;

export const webhooksQuery = queryOptions({
  queryKey: ALL,
  queryFn: async ({ signal }) =>
    (await body(api.GET("/api/v1/webhooks", { params: { query: { limit: MOST } }, signal }))).items,
  refetchInterval: (query) => (query.state.data?.some(({ waiting }) => waiting > 0) ? AGAIN_MS : 15_000),
});

export function deliveriesQuery(id: string) {
  return queryOptions({
    queryKey: [...ALL, id, "deliveries"],
    queryFn: async ({ signal }) =>
      (
        await body(
          api.GET("/api/v1/webhooks/{webhook_id}/deliveries", {
            params: { path: { webhook_id: id }, query: { limit: LATEST } },
            signal,
          }),
        )
      ).items,
    refetchInterval: AGAIN_MS,
  });
}

export function makeWebhook(request: WebhookCreate) {
  return body(api.POST("/api/v1/webhooks", { body: request }));
}

export function changeWebhook(id: string, change: WebhookPatch) {
  return body(
    api.PATCH("/api/v1/webhooks/{webhook_id}", { params: { path: { webhook_id: id } }, body: change }),
  );
}

export function replaceSecret(id: string) {
  const params = { path: { webhook_id: id } };
  return body(
    api.POST("/api/v1/webhooks/{webhook_id}:replace-secret", { params, body: { keep_old_s: KEEP_OLD_S } }),
  );
}

export async function deleteWebhook(id: string): Promise<void> {
  await api.DELETE("/api/v1/webhooks/{webhook_id}", { params: { path: { webhook_id: id } } });
}

export function testWebhook(id: string) {
  return body(api.POST("/api/v1/webhooks/{webhook_id}:test", { params: { path: { webhook_id: id } } }));
}
