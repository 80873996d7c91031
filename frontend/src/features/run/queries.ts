import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body, EXACT } from "@/api/client";
import { keys, runQuery } from "@/api/queries";
import type { LogHit, LogSearchPart, Run, RunPatch } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { firstIdle } from "@/lib/idle";
import { linesOf } from "@/lib/lines";
import { lostOf } from "./gaps";

const path = (id: string) => ({ run_id: id });

export const runKeys = {
  placement: (id: string) => [...keys.run(id), "placement"] as const,
  arrivals: (id: string) => [...keys.run(id), "arrivals"] as const,
  usage: (id: string, step?: number) => [...keys.run(id), "usage", step] as const,
  replicas: (id: string) => [...keys.run(id), "replicas"] as const,
  attempts: (id: string) => [...keys.run(id), "attempts"] as const,
  metrics: (id: string) => [...keys.run(id), "metrics"] as const,
  /** Apart from the values: each new one would ask for all names again. */
  metricNames: (id: string) => ["metric names", id] as const,
  reductions: (id: string) => [...keys.run(id), "reductions"] as const,
  media: (id: string) => [...keys.run(id), "media"] as const,
  artifacts: (id: string) => [...keys.run(id), "artifacts"] as const,
  profiles: (id: string) => [...keys.run(id), "profiles"] as const,
  checkpoints: (id: string) => [...keys.run(id), "checkpoints"] as const,
  gaps: (id: string) => [...keys.run(id), "gaps"] as const,
  /** A recorded reduction never changes, so no event asks for it again. */
  reduction: (id: string, reduction: string) => ["reduction", id, reduction] as const,
};

/** A run without its progress, which changes at each step: what shows the rest is not rendered again for it. */
export type SteadyRun = Omit<Run, "progress">;

const withoutProgress = ({ progress: _, ...steady }: Run): SteadyRun => steady;
const stragglerOf = ({ progress }: Run) => progress.straggler ?? null;
const hasEnded = (run: Run): boolean => isTerminal(run.state);

export function steadyRunQuery(id: string) {
  return { ...runQuery(id), select: withoutProgress };
}

/** The member that the others wait for; null where there is none. */
export function stragglerQuery(id: string) {
  return { ...runQuery(id), select: stragglerOf };
}

/** Whether the run has ended. */
export function runEndedQuery(id: string) {
  return { ...runQuery(id), select: hasEnded };
}

export function placementQuery(id: string) {
  return queryOptions({
    queryKey: runKeys.placement(id),
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/runs/{run_id}/placement", { params: { path: path(id) }, signal })),
  });
}

/** Members of a gang on one page of the answer; larger ones say so. */
const MOST_MEMBERS = 200;

/** When each member of the run's gang comes to its collectives: now, or up to a call of `strategy.run`. */
export function arrivalsQuery(id: string, call?: number) {
  return queryOptions({
    queryKey: [...runKeys.arrivals(id), call] as const,
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/arrivals", {
          params: { path: path(id), query: { limit: MOST_MEMBERS, call } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });
}

/** Traced steps come as often as the run was asked for; a look now and then finds them. */
const TRACED_EVERY_MS = 15_000;
/** Of the devices of a run those that the others may be waiting for. */
const MOST_REPLICAS = 64;

/** How long each replica computes and waits in the newest traced steps. */
export function replicaTimesQuery(id: string, ended: boolean) {
  return queryOptions({
    queryKey: runKeys.replicas(id),
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/replicas", {
          params: { path: path(id), query: { limit: MOST_REPLICAS } },
          signal,
        }),
      ),
    refetchInterval: ended ? false : TRACED_EVERY_MS,
  });
}

/** What members use is told every five seconds at first, and once a minute of a long run. */
const USAGE_EVERY_MS = 5_000;

/** What the processes of each member use of its host; as of a step, or now. */
export function usageQuery(id: string, ended: boolean, step?: number) {
  return queryOptions({
    queryKey: runKeys.usage(id, step),
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/usage", {
          params: { path: path(id), query: { limit: MOST_MEMBERS, step } },
          signal,
        }),
      ),
    refetchInterval: ended ? false : USAGE_EVERY_MS,
  });
}

/** Attempts, newest first. */
export function attemptsQuery(id: string) {
  return queryOptions({
    queryKey: runKeys.attempts(id),
    queryFn: async ({ signal }) => {
      const page = await body(
        api.GET("/api/v1/runs/{run_id}/attempts", { params: { path: path(id) }, signal }),
      );
      return [...page.items].sort((a, b) => b.number - a.number);
    },
  });
}

/** Asks every live process of a run where it stands. */
export function askStacks(id: string) {
  return body(api.POST("/api/v1/runs/{run_id}/stacks", { params: { path: path(id) } }));
}

/** Where they stood when they were last asked. */
export function fetchStacks(id: string, signal: AbortSignal) {
  return body(api.GET("/api/v1/runs/{run_id}/stacks", { params: { path: path(id) }, signal }));
}

/** Registered checkpoints, the one that the run would resume from first. */
export function checkpointsQuery(id: string) {
  return infiniteQueryOptions({
    queryKey: runKeys.checkpoints(id),
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ pageParam, signal }) => {
      await firstIdle();
      return body(
        api.GET("/api/v1/runs/{run_id}/checkpoints", {
          params: { path: path(id), query: pageParam ? { cursor: pageParam } : {} },
          signal,
        }),
      );
    },
    getNextPageParam: (page) => page.next ?? undefined,
  });
}

interface MetricsRange {
  /** One attempt's curves; without it the run's, cut where an attempt was rolled back. */
  attempt?: string | undefined;
  x: "step" | "time";
  from?: number | undefined;
  to?: number | undefined;
  buckets: number;
  names?: string[] | undefined;
  /** Only so many of them, as a page begins. */
  first?: number | undefined;
}

export function fetchMetrics(id: string, range: MetricsRange, signal?: AbortSignal) {
  return body(
    api.GET("/api/v1/runs/{run_id}/metrics", {
      params: { path: path(id), query: { ...range } },
      ...(signal ? { signal } : {}),
    }),
  );
}

/** New names are rare: they are looked for beside the values, which come each second. */
const NAMES_EVERY_MS = 5_000;

/** The groups of a run's metrics, and where all of them begin and end. */
export function metricGroupsQuery(id: string, search: string | undefined, ended: boolean) {
  return queryOptions({
    queryKey: [...runKeys.metricNames(id), "groups", search] as const,
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/metrics/groups", {
          params: { path: path(id), query: { search } },
          signal,
        }),
      ),
    placeholderData: (previous) => previous,
    refetchInterval: ended ? false : NAMES_EVERY_MS,
  });
}

/** The names of one group, or of all of them, page by page. */
export function metricNamesQuery(
  id: string,
  search: string | undefined,
  group: string | undefined,
  limit = 120,
) {
  return infiniteQueryOptions({
    queryKey: [...runKeys.metricNames(id), "names", search, group, limit] as const,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/metrics/names", {
          params: { path: path(id), query: { search, group, limit, cursor: pageParam } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: (previous) => previous,
  });
}

/** Of one attempt, or of the run without what was rolled back. */
export function reductionNamesQuery(id: string, attempt: string | undefined) {
  return queryOptions({
    queryKey: [...runKeys.reductions(id), "names", attempt] as const,
    queryFn: async ({ signal }) => {
      const query = attempt ? { attempt } : {};
      const call = api.GET("/api/v1/runs/{run_id}/reductions/names", {
        params: { path: path(id), query },
        signal,
      });
      return (await body(call)).names;
    },
  });
}

/** The reductions of one name at one step, in the order in which they were recorded. */
export function reductionsAtQuery(id: string, name: string, step: number, attempt: string | undefined) {
  return queryOptions({
    queryKey: [...runKeys.reductions(id), "at", name, step, attempt] as const,
    queryFn: async ({ signal }) => {
      const query = { name, step_from: step, step_to: step, limit: 200, ...(attempt && { attempt }) };
      const page = await body(
        api.GET("/api/v1/runs/{run_id}/reductions", { params: { path: path(id), query }, signal }),
      );
      return page.items;
    },
  });
}

export function reductionQuery(id: string, reduction: string) {
  return queryOptions({
    queryKey: runKeys.reduction(id, reduction),
    queryFn: ({ signal }) =>
      body(
        api.GET("/api/v1/runs/{run_id}/reductions/{reduction_id}", {
          params: { path: { run_id: id, reduction_id: reduction } },
          signal,
        }),
      ),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** Every element of its inputs and then of its result; only for who asks, as there may be half a megabyte. */
export function reductionElementsQuery(id: string, reduction: string) {
  return queryOptions({
    queryKey: [...runKeys.reduction(id, reduction), "elements"] as const,
    queryFn: ({ signal }): Promise<ArrayBuffer> =>
      body(
        api.GET("/api/v1/runs/{run_id}/reductions/{reduction_id}/values", {
          params: { path: { run_id: id, reduction_id: reduction } },
          parseAs: "arrayBuffer",
          signal,
        }),
      ),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** How much of each kind of telemetry is lost. */
export function gapsQuery(id: string) {
  return queryOptions({
    queryKey: runKeys.gaps(id),
    queryFn: async ({ signal }) => {
      const query = { limit: 200 };
      await firstIdle();
      const page = await body(
        api.GET("/api/v1/runs/{run_id}/gaps", { params: { path: path(id), query }, signal }),
      );
      return lostOf(page.items);
    },
  });
}

interface LogsRange {
  from: number;
  limit: number;
  attempt?: string | undefined;
  member?: string | undefined;
}

/** Output from byte `from` on; a negative `from` counts from the end. */
export function fetchLogs(id: string, range: LogsRange, signal?: AbortSignal) {
  return body(
    api.GET("/api/v1/runs/{run_id}/logs", {
      params: { path: path(id), query: { ...range } },
      ...(signal ? { signal } : {}),
    }),
  );
}

export type LogStream = LogHit["stream"];
export type LogLevel = "debug" | "info" | "warning" | "error" | "critical";

interface LogQuery {
  find: string;
  regex: boolean;
  /** As grave as that or graver. */
  level?: LogLevel;
  stream?: LogStream;
  member: string;
  limit: number;
  cursor?: string;
}

/** Lines of a member's whole output that hold a text, part by part as the server finds them. */
export async function* searchLogs(
  id: string,
  query: LogQuery,
  signal: AbortSignal,
): AsyncGenerator<LogSearchPart> {
  const params = { path: path(id), query };
  const { data } = await api.GET("/api/v1/runs/{run_id}/logs/search", { params, signal, parseAs: "stream" });
  if (!data) return;
  for await (const line of linesOf(data)) yield JSON.parse(line) as LogSearchPart;
}

export function cancelRun(id: string) {
  return body(api.POST("/api/v1/runs/{run_id}:cancel", { params: { path: path(id) }, ...EXACT }));
}

/** Changes its labels, note or star. */
export function patchRun(id: string, change: RunPatch) {
  return body(api.PATCH("/api/v1/runs/{run_id}", { params: { path: path(id) }, body: change, ...EXACT }));
}
