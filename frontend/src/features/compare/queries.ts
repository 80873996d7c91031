import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, body, EXACT } from "@/api/client";
import type { ComparedCurve, ComparedRun, Run } from "@/api/schema";
import type { XAxis } from "@/components/metrics/x-axis";

/** Runs of one request. */
const AT_ONCE = 100;
/** Runs that are compared at most: more are not read beside each other. */
export const MOST_RUNS = 400;

/** The runs of a sweep, in its order. */
export function batchRunsQuery(batch: string) {
  return queryOptions({
    queryKey: ["compare", "batch", batch] as const,
    queryFn: async ({ signal }) => {
      const params = { path: { batch_id: batch }, query: { limit: MOST_RUNS } };
      const { items, total } = await body(api.GET("/api/v1/batches/{batch_id}/outcomes", { params, signal }));
      return { ids: items.map(({ run }) => run), total };
    },
  });
}

/** The runs whole, in the order of their ids. */
export function detailsQuery(ids: readonly string[]) {
  return queryOptions({
    queryKey: ["compare", "runs", ids] as const,
    queryFn: async ({ signal }) => {
      const pages = await Promise.all(
        pieces(ids).map((runs) =>
          body(api.GET("/api/v1/runs:details", { params: { query: { runs } }, signal, ...EXACT })),
        ),
      );
      return pages.flatMap(({ items }): Run[] => items);
    },
    enabled: ids.length > 0,
    placeholderData: (previous) => previous,
  });
}

/** Names that any of the runs logged. */
export function sharedNamesQuery(ids: readonly string[], search: string | undefined, limit: number) {
  const runs = ids.slice(0, AT_ONCE);
  return infiniteQueryOptions({
    queryKey: ["compare", "names", runs, search, limit] as const,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      body(
        api.GET("/api/v1/runs:metric-names", {
          params: { query: { runs, search, limit, cursor: pageParam } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.next ?? undefined,
    enabled: runs.length > 0,
    placeholderData: (previous) => previous,
  });
}

/** Names that are drawn where nobody has chosen any. */
export function firstNamesQuery(ids: readonly string[]) {
  return sharedNamesQuery(ids, undefined, 200);
}

export interface CurvesAsked {
  ids: readonly string[];
  name: string;
  x: XAxis;
  from: number | undefined;
  to: number | undefined;
  buckets: number;
  /** Runs that are asked for with all columns; of the others their means in digits enough to draw them. */
  banded: readonly string[] | "all";
}

export interface Curves {
  curves: ComparedCurve[];
  runs: ComparedRun[];
  width: number;
  start: number | null;
  end: number | null;
}

/** One metric of all runs on one axis. */
export function curvesQuery(asked: CurvesAsked) {
  return queryOptions({
    queryKey: ["compare", "curves", asked] as const,
    queryFn: async ({ signal }) => {
      const { from, to } = asked;
      const first = await ask(asked, { from, to }, signal);
      const chunked = asked.ids.length > AT_ONCE;
      const [start, end] = [first.start, first.end];
      // Each answer has an axis of its own: only bounds that all share make their buckets the same.
      if (!chunked || start === null || end === null || (from !== undefined && to !== undefined))
        return first;
      return ask(asked, { from: start, to: end }, signal);
    },
    enabled: asked.ids.length > 0,
    placeholderData: (previous) => previous,
  });
}

/** Nine digits tell all numbers apart that are no nearer to each other than those of float32, which is what charts show. */
const MEANS = { columns: ["mean", "count"], digits: 9 } satisfies { columns: CurveColumn[]; digits: number };
type CurveColumn = keyof ComparedCurve["points"];

async function ask(
  { ids, name, x, buckets, banded }: CurvesAsked,
  bounds: { from: number | undefined; to: number | undefined },
  signal: AbortSignal,
): Promise<Curves> {
  const answers = await Promise.all(
    pieces(ids).map((runs) => {
      const kept = banded === "all" ? {} : { ...MEANS, whole: runs.filter((run) => banded.includes(run)) };
      const query = { runs, names: [name], x, buckets, ...bounds, ...kept };
      return body(api.GET("/api/v1/runs:metrics", { params: { query }, signal }));
    }),
  );
  const ends = (pick: (one: (typeof answers)[number]) => number | null) =>
    answers.map(pick).filter((end) => end !== null);
  const [starts, lasts] = [ends(({ start }) => start), ends(({ end }) => end)];
  return {
    curves: answers.flatMap(({ curves }) => curves),
    runs: answers.flatMap(({ runs }) => runs),
    width: Math.max(0, ...answers.map(({ bucket_width }) => bucket_width)),
    start: starts.length > 0 ? Math.min(...starts) : null,
    end: lasts.length > 0 ? Math.max(...lasts) : null,
  };
}

function pieces(ids: readonly string[]): string[][] {
  return Array.from({ length: Math.ceil(ids.length / AT_ONCE) }, (_, at) =>
    ids.slice(at * AT_ONCE, (at + 1) * AT_ONCE),
  );
}
