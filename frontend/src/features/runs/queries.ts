import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body, EXACT } from "@/api/client";
import { keys } from "@/api/queries";
import type { BulkAction, BulkChange, RunListView } from "@/api/schema";

export const fieldsQuery = (q: string, limit = 20) =>
  queryOptions({
    queryKey: [...keys.runs, "fields", q, limit] as const,
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/runs:fields", { params: { query: { q, limit } }, signal })),
    placeholderData: keepPreviousData,
    staleTime: 30_000,
  });

export const countQuery = (where: string, archived: boolean) =>
  queryOptions({
    queryKey: [...keys.runs, "count", where, archived] as const,
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/runs:count", { params: { query: { where, archived } }, signal })),
    placeholderData: keepPreviousData,
    retry: false,
  });

export const groupsQuery = (by: string, where: string, archived: boolean) =>
  queryOptions({
    queryKey: [...keys.runs, "groups", by, where, archived] as const,
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/runs:groups", {
          params: { query: { by, where, archived, limit: 100 } },
          signal,
          ...EXACT,
        }),
      ),
    placeholderData: keepPreviousData,
    retry: false,
  });

export const viewsQuery = queryOptions({
  queryKey: ["run-views"] as const,
  queryFn: ({ signal }) => body(api.GET("/api/v1/run-views", { signal })),
});

export const saveView = (name: string, view: RunListView) =>
  body(api.PUT("/api/v1/run-views/{name}", { params: { path: { name } }, body: view }));

export async function deleteView(name: string): Promise<void> {
  await api.DELETE("/api/v1/run-views/{name}", { params: { path: { name } } });
}

/** Which runs a change is of: those named, or all that match. */
export type Chosen = { runs: string[] } | { where: string; archived: boolean };

const ASK_AGAIN_MS = 300;

/** Changes runs, telling how far it is, and resolves once it is over. */
export async function changeRuns(
  action: Partial<BulkAction> & Pick<BulkAction, "kind">,
  chosen: Chosen,
  tell: (change: BulkChange) => void,
): Promise<BulkChange> {
  let change = await body(api.POST("/api/v1/runs:change", { body: { action, ...chosen } as never }));
  for (;;) {
    tell(change);
    if (change.state === "DONE") return change;
    await new Promise((resolve) => window.setTimeout(resolve, ASK_AGAIN_MS));
    change = await body(
      api.GET("/api/v1/bulk-changes/{bulk_id}", { params: { path: { bulk_id: change.id } } }),
    );
  }
}
