import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { keys } from "@/api/queries";
import { runKeys } from "../queries";

/** Workers tell their time in stretches of a second and more. */
const AGAIN_MS = 3_000;
const PIECES = 300;

/** What was shown of the same run stays until its answer is there; of another run nothing does. */
const ofRun =
  (id: string) =>
  <T>(previous: T | undefined, query?: { queryKey: readonly unknown[] }): T | undefined =>
    query?.queryKey[1] === id ? previous : undefined;

export interface Seen {
  from?: number | undefined;
  to?: number | undefined;
}

/** Where the time of a run went; of a live one again and again. One that is seen to have ended is asked for once more. */
export function ledgerQuery(id: string, ended: boolean) {
  return queryOptions({
    queryKey: [...keys.run(id), "ledger", ended] as const,
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/runs/{run_id}/ledger", { params: { path: { run_id: id } }, signal })),
    placeholderData: ofRun(id),
    refetchInterval: ended ? false : AGAIN_MS,
  });
}

/** What each place of the gang did, page by page; asked for once more as the ledger is. */
export function lanesQuery(id: string, seen: Seen, ended: boolean) {
  return infiniteQueryOptions({
    queryKey: [...keys.run(id), "lanes", seen, ended] as const,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/timeline", {
          params: { path: { run_id: id }, query: { ...seen, pieces: PIECES, cursor: pageParam } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: ofRun(id),
    refetchInterval: ended ? false : AGAIN_MS,
  });
}

/** Traced steps, the newest first; events of the run ask for them again. */
export function profilesQuery(id: string) {
  return infiniteQueryOptions({
    queryKey: [...runKeys.profiles(id), "list"] as const,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/profiles", {
          params: { path: { run_id: id }, query: { cursor: pageParam, limit: 100 } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: ofRun(id),
  });
}

/** One traced step with its lanes, which never change. */
export function profileQuery(id: string, profile: string) {
  return queryOptions({
    queryKey: ["profile", id, profile] as const,
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/profiles/{profile_id}", {
          params: { path: { run_id: id, profile_id: profile } },
          signal,
        }),
      ),
  });
}

export function fileAddress(id: string, profile: string): string {
  return `/api/v1/runs/${encodeURIComponent(id)}/profiles/${encodeURIComponent(profile)}/file`;
}
