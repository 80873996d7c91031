import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, body, EXACT } from "@/api/client";
import { keys } from "@/api/queries";

const PAGE_SIZE = 50;
const CHANGES = 10;

export const jobsQuery = infiniteQueryOptions({
  queryKey: [...keys.jobs, "list"],
  queryFn: ({ pageParam, signal }) =>
    body(api.GET("/api/v1/jobs", { params: { query: { cursor: pageParam, limit: PAGE_SIZE } }, signal })),
  initialPageParam: undefined as string | undefined,
  getNextPageParam: (page) => page.next ?? undefined,
});

export function jobQuery(name: string) {
  return queryOptions({
    queryKey: [...keys.jobs, name],
    queryFn: ({ signal }) => body(api.GET("/api/v1/jobs/{name}", { params: { path: { name } }, signal })),
  });
}

export function versionsQuery(name: string) {
  return infiniteQueryOptions({
    queryKey: [...keys.jobs, name, "versions"],
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/jobs/{name}/versions", {
          params: { path: { name }, query: { cursor: pageParam, limit: PAGE_SIZE } },
          signal,
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
}

/** Which version was current when, newest first. */
export function changesQuery(name: string) {
  return infiniteQueryOptions({
    queryKey: [...keys.jobs, name, "changes"],
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/jobs/{name}/changes", {
          params: { path: { name }, query: { cursor: pageParam, limit: CHANGES } },
          signal,
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
}

export function versionQuery(name: string, number: number) {
  return queryOptions({
    queryKey: [...keys.jobs, name, "version", number],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/jobs/{name}/versions/{number}", { params: { path: { name, number } }, signal })),
  });
}

/** Versions never change, so neither does what differs between two. */
export function diffQuery(name: string, old: number, number: number) {
  return queryOptions({
    queryKey: [...keys.jobs, name, "diff", old, number],
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/jobs/{name}/versions/{number}/diff", {
          params: { path: { name, number }, query: { against: old } },
          signal,
          ...EXACT,
        }),
      ),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function rollBack(name: string, version: number) {
  return body(api.POST("/api/v1/jobs/{name}:rollback", { params: { path: { name } }, body: { version } }));
}
