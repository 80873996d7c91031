import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { keys } from "@/api/queries";

/** Workers tell their time in stretches of a second and more. */
const AGAIN_MS = 3_000;
const PIECES = 300;

export interface Seen {
  from?: number | undefined;
  to?: number | undefined;
}

/** Where the time of a run went; of a live one again and again. */
export function ledgerQuery(id: string, ended: boolean) {
  return queryOptions({
    queryKey: [...keys.run(id), "ledger"] as const,
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/runs/{run_id}/ledger", { params: { path: { run_id: id } }, signal })),
    refetchInterval: ended ? false : AGAIN_MS,
  });
}

/** What each place of the gang did, page by page. */
export function lanesQuery(id: string, seen: Seen, ended: boolean) {
  return infiniteQueryOptions({
    queryKey: [...keys.run(id), "lanes", seen] as const,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/timeline", {
          params: { path: { run_id: id }, query: { ...seen, pieces: PIECES, cursor: pageParam } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: (previous) => previous,
    refetchInterval: ended ? false : AGAIN_MS,
  });
}
