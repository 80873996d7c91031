import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { MediaSeries } from "@/api/schema";
import { runKeys } from "../queries";

/** Columns of a heat map. */
const MOST_STEPS = 100;

const ASK_AGAIN_MS = 2_000;

/** Files that the run keeps, the newest first; asked again while one arrives, as no event tells of that once the run has ended. */
export function artifactsQuery(id: string, attempt: string | undefined) {
  return infiniteQueryOptions({
    queryKey: [...runKeys.artifacts(id), attempt] as const,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/artifacts", {
          params: { path: { run_id: id }, query: { attempt, cursor: pageParam, limit: 50 } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
    refetchInterval: ({ state }) =>
      state.data?.pages.some(({ items }) => items.some((one) => one.state === "ARRIVING")) && ASK_AGAIN_MS,
    placeholderData: keepPreviousData,
  });
}

export function artifactAddress(id: string, artifact: string): string {
  return `/api/v1/runs/${encodeURIComponent(id)}/artifacts/${encodeURIComponent(artifact)}/file`;
}

/** What was logged under which name, page by page. */
export function mediaQuery(id: string, attempt: string | undefined) {
  return infiniteQueryOptions({
    queryKey: [...runKeys.media(id), "names", attempt] as const,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/media", {
          params: { path: { run_id: id }, query: { attempt, cursor: pageParam, limit: 40 } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: keepPreviousData,
  });
}

interface Wanted {
  series: MediaSeries;
  attempt: string | undefined;
}

/** The value of a series at a step, or the newest before it; without a step the newest of all. */
export function valueQuery(
  id: string,
  { series, attempt }: Wanted,
  at: { step: number | undefined; nth: number },
) {
  const query = { name: series.name, kind: series.kind, attempt, ...at };
  return queryOptions({
    queryKey: [...runKeys.media(id), "at", query] as const,
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/runs/{run_id}/media/at", { params: { path: { run_id: id }, query }, signal })),
    placeholderData: keepPreviousData,
  });
}

/** The histograms of a series over all steps. */
export function histogramsQuery(id: string, { series, attempt }: Wanted) {
  const query = { name: series.name, attempt, most: MOST_STEPS };
  return queryOptions({
    queryKey: [...runKeys.media(id), "histograms", query] as const,
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/media/histograms", {
          params: { path: { run_id: id }, query },
          signal,
        }),
      ),
  });
}

export function pngAddress(id: string, media: string): string {
  return `/api/v1/runs/${encodeURIComponent(id)}/media/${encodeURIComponent(media)}/png`;
}
