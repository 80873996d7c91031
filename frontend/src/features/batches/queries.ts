import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, body, EXACT } from "@/api/client";
import { keys } from "@/api/queries";
import type { Outcomes } from "@/components/outcomes/best";

const PAGE_SIZE = 50;
/** More lines are no picture, and more rows no table: of a larger batch the first by the order that is chosen. */
const SHOWN = 1_000;

export const batchesQuery = infiniteQueryOptions({
  queryKey: [...keys.batches, "list"],
  queryFn: ({ pageParam, signal }) =>
    body(api.GET("/api/v1/batches", { params: { query: { cursor: pageParam, limit: PAGE_SIZE } }, signal })),
  initialPageParam: undefined as string | undefined,
  getNextPageParam: (page) => page.next ?? undefined,
});

export function batchQuery(id: string) {
  return queryOptions({
    queryKey: [...keys.batches, id],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/batches/{batch_id}", { params: { path: { batch_id: id } }, signal })),
  });
}

export function outcomesQuery(id: string, sort: string) {
  return queryOptions({
    queryKey: [...keys.batches, id, "outcomes", sort],
    queryFn: ({ signal }): Promise<Outcomes> =>
      body(
        api.GET("/api/v1/batches/{batch_id}/outcomes", {
          params: { path: { batch_id: id }, query: { sort, limit: SHOWN } },
          signal,
          ...EXACT,
        }),
      ),
  });
}

export function cancelBatch(id: string) {
  return body(api.POST("/api/v1/batches/{batch_id}:cancel", { params: { path: { batch_id: id } } }));
}
