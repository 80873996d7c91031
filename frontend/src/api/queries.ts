/** The queries that more than one feature asks; a feature's own stand in its folder. Keys begin with what they are about. */
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { firstIdle } from "@/lib/idle";
import { api, body, EXACT } from "./client";
import type { Device, Host, RunState } from "./schema";

const PAGE_SIZE = 200;

export const keys = {
  overview: ["overview"] as const,
  runs: ["runs"] as const,
  jobs: ["jobs"] as const,
  batches: ["batches"] as const,
  run: (id: string) => ["run", id] as const,
  hosts: ["hosts"] as const,
  devices: ["devices"] as const,
  session: ["session"] as const,
  version: ["version"] as const,
};

export const overviewQuery = queryOptions({
  queryKey: keys.overview,
  queryFn: ({ signal }) => body(api.GET("/api/v1/overview", { signal })),
});

export const hostsQuery = queryOptions({
  queryKey: keys.hosts,
  queryFn: ({ signal }) =>
    allPages<Host>((cursor) =>
      body(api.GET("/api/v1/hosts", { params: { query: { cursor, limit: PAGE_SIZE } }, signal })),
    ),
});

export const devicesQuery = queryOptions({
  queryKey: keys.devices,
  queryFn: ({ signal }) =>
    allPages<Device>((cursor) =>
      body(api.GET("/api/v1/devices", { params: { query: { cursor, limit: PAGE_SIZE } }, signal })),
    ),
});

export interface RunsFilter {
  readonly q?: string | undefined;
  readonly state?: readonly RunState[] | undefined;
  readonly job?: string | undefined;
  readonly version?: number | undefined;
  readonly owner?: string | undefined;
  readonly batch?: string | undefined;
  readonly label?: readonly string[] | undefined;
  readonly sort?: string | undefined;
  readonly where?: string | undefined;
  readonly column?: readonly string[] | undefined;
  readonly archived?: boolean | undefined;
}

/** Runs page by page, newest first unless sorted otherwise. */
export function runsQuery(filter: RunsFilter, limit = 50) {
  return infiniteQueryOptions({
    queryKey: [...keys.runs, filter, limit] as const,
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/runs", {
          params: { query: { ...mutable(filter), cursor: pageParam, limit } },
          signal,
          ...EXACT,
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
  });
}

export function runQuery(id: string) {
  return queryOptions({
    queryKey: keys.run(id),
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/runs/{run_id}", { params: { path: { run_id: id } }, signal, ...EXACT })),
    // Why a run waits changes with other runs, of which its own events tell nothing.
    refetchInterval: (query) => (query.state.data?.why ? 5_000 : false),
  });
}

export const sessionQuery = queryOptions({
  queryKey: keys.session,
  queryFn: ({ signal }) => firstIdle().then(() => body(api.GET("/api/v1/sessions/current", { signal }))),
  staleTime: 300_000,
});

export const versionQuery = queryOptions({
  queryKey: keys.version,
  queryFn: ({ signal }) => firstIdle().then(() => body(api.GET("/api/v1/version", { signal }))),
  staleTime: Number.POSITIVE_INFINITY,
});

interface Page<Item> {
  items: Item[];
  next?: string | null;
}

async function allPages<Item>(page: (cursor: string | undefined) => Promise<Page<Item>>): Promise<Item[]> {
  const items: Item[] = [];
  let cursor: string | undefined;
  do {
    const answer = await page(cursor);
    items.push(...answer.items);
    cursor = answer.next ?? undefined;
  } while (cursor);
  return items;
}

function mutable(filter: RunsFilter) {
  return {
    ...filter,
    state: filter.state && [...filter.state],
    label: filter.label && [...filter.label],
    column: filter.column && [...filter.column],
  };
}
