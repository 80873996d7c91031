import { type QueryClient, queryOptions } from "@tanstack/react-query";
import type { Metrics } from "@/api/schema";
import type { ChartView } from "@/components/metrics/chart-view";
import { type Curve, curveOf } from "@/components/metrics/series";
import { parseSpecs, type Spec } from "@/components/metrics/view";
import { bucketsFor, type XAxis } from "@/components/metrics/x-axis";
import { fetchMetrics, runKeys } from "../queries";

export interface CurveRange {
  attempt?: string | undefined;
  x: XAxis;
  from?: number | undefined;
  to?: number | undefined;
  buckets: number;
}

/** What the address says of the curves: their axis, its ends, whose, and how many charts stand beside each other. */
export function rangeOf(view: Shown, page: number): CurveRange {
  const { x = "step", from, to, attempt, wide } = view;
  const share = page >= 1024 ? page / 3 : page >= 700 ? page / 2 : page;
  const buckets = bucketsFor(share * (parseSpecs(wide).length > 0 ? 3 : 1));
  return { x, from, to, attempt, buckets };
}

type Shown = Pick<ChartView, "x" | "from" | "to" | "wide"> & { attempt?: string | undefined };

/** A curve with where its axis of time has its zero, in ms since 1970. */
interface RunCurve {
  curve: Curve | null;
  zero: number | null;
}

/** Names of one request: so many curves answer in one piece of work of the server. */
const MOST_NAMES = 12;

/** The curves that a page of metrics begins with, in one answer: each becomes that of the chart which draws it alone. */
export function firstCurvesQuery(client: QueryClient, runId: string, range: CurveRange, first: number) {
  return queryOptions({
    queryKey: [...runKeys.metrics(runId), "first", first, range] as const,
    queryFn: async () => {
      const askedAt = Date.now();
      const answer = await fetchMetrics(runId, asked(range, { first }));
      for (const { name } of answer.series) {
        const { queryKey } = curvesQuery(client, runId, [name], range);
        // A chart that did not wait for this one has a newer answer of its own.
        if ((client.getQueryState(queryKey)?.dataUpdatedAt ?? 0) <= askedAt)
          client.setQueryData(queryKey, [pick(answer, name)], { updatedAt: askedAt });
      }
      return answer.series.length;
    },
  });
}

/** Nothing that is left out stands in the request, so that `src/start.js` asks for the same. */
function asked({ x, ...rest }: CurveRange, which: { first: number } | { names: string[] }) {
  return { x: x === "step" ? ("step" as const) : ("time" as const), ...rest, ...which };
}

/**
 * The curves of one chart. Those that are wanted at the same moment are asked for together. While another range is on its way
 * the chart keeps what it has, but never on an axis of another kind.
 */
export function curvesQuery(client: QueryClient, runId: string, names: Spec, range: CurveRange) {
  return queryOptions({
    queryKey: [...runKeys.metrics(runId), "curves", names, range] as const,
    queryFn: () => Promise.all(names.map((name) => gather(client, runId, range, name))),
    placeholderData: (previous, query) =>
      query && isAlike(query.queryKey.at(-1), range) ? previous : undefined,
  });
}

function isAlike(before: unknown, { x, attempt }: CurveRange): boolean {
  const old = before as CurveRange;
  return old.x === x && old.attempt === attempt;
}

interface Waiting {
  names: Map<string, { done: (curve: RunCurve) => void; fail: (error: unknown) => void }[]>;
}

const waiting = new WeakMap<QueryClient, Map<string, Waiting>>();

function gather(client: QueryClient, runId: string, range: CurveRange, name: string): Promise<RunCurve> {
  const ofClient = waiting.get(client) ?? new Map<string, Waiting>();
  waiting.set(client, ofClient);
  const key = JSON.stringify([runId, range]);
  const found = ofClient.get(key) ?? { names: new Map() };
  if (!ofClient.has(key)) {
    ofClient.set(key, found);
    window.setTimeout(() => {
      ofClient.delete(key);
      ask(runId, range, found);
    });
  }
  return new Promise((done, fail) => {
    found.names.set(name, [...(found.names.get(name) ?? []), { done, fail }]);
  });
}

function ask(runId: string, range: CurveRange, { names }: Waiting): void {
  const all = [...names.keys()].sort();
  for (let at = 0; at < all.length; at += MOST_NAMES) {
    const some = all.slice(at, at + MOST_NAMES);
    fetchMetrics(runId, asked(range, { names: some })).then(
      (answer) => {
        for (const name of some) for (const each of names.get(name) ?? []) each.done(pick(answer, name));
      },
      (error) => {
        for (const name of some) for (const each of names.get(name) ?? []) each.fail(error);
      },
    );
  }
}

function pick({ series, gaps, began }: Metrics, name: string): RunCurve {
  const found = series.find((each) => each.name === name);
  return { curve: found ? curveOf(found, gaps) : null, zero: began ? Date.parse(began) : null };
}
