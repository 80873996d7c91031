/**
 * What pages ask for while their code is on the way. Each answer leads to the next question, so that a page which began with
 * the first would wait for all of them in turn. What fails here the page asks for again, and shows it.
 */
import type { QueryClient } from "@tanstack/react-query";
import { inOrder } from "@/components/metrics/series";
import { groupOf, parseSpecs } from "@/components/metrics/view";
import { curvesAsked, shownNames } from "@/features/compare/asked";
import {
  batchRunsQuery,
  curvesQuery as comparedCurvesQuery,
  detailsQuery,
  firstNamesQuery,
  MOST_RUNS,
} from "@/features/compare/queries";
import { type CompareSearch, parseRuns } from "@/features/compare/search";
import { curvesQuery, firstCurvesQuery, rangeOf } from "@/features/run/metrics/curves";
import { opensByItself } from "@/features/run/metrics/opening";
import { metricGroupsQuery, metricNamesQuery } from "@/features/run/queries";
import type { metricsSearch } from "@/features/run/search";
import { pageWidth } from "@/lib/page-width";

let going: Promise<unknown> = Promise.resolve();

/** Begins to ask; nobody waits for it but the first page. */
export function goAhead(work: Promise<unknown>): void {
  going = Promise.allSettled([going, work]);
}

/** Once all that was begun is there. */
export async function wentAhead(): Promise<void> {
  await going;
}

/** Charts whose curves are asked for ahead: so many are drawn at a time. */
const FIRST_CHARTS = 12;

/** The metrics that stand open: their names, then the curves of the first charts. */
export async function metricsAhead(
  client: QueryClient,
  runId: string,
  view: ReturnType<typeof metricsSearch>,
): Promise<void> {
  const groups = metricGroupsQuery(runId, view.q, true);
  const range = rangeOf(view, pageWidth());
  // What a page shows unless its address says otherwise is asked for at once; the rest once it is known.
  const first = view.q
    ? undefined
    : client.prefetchQuery(firstCurvesQuery(client, runId, range, FIRST_CHARTS));
  await Promise.allSettled([client.prefetchQuery(groups), namesAhead(client, runId, view.q), first]);
  const open = [...opensByItself(client.getQueryData(groups.queryKey)?.groups ?? [])];
  const queries = open.map((group) => metricNamesQuery(runId, view.q, group));
  await Promise.all(queries.map((query) => client.prefetchInfiniteQuery(query)));
  const names = queries.flatMap(({ queryKey }) =>
    inOrder(client.getQueryData(queryKey)?.pages.flatMap(({ items }) => items) ?? []),
  );
  const charts = [...parseSpecs(view.pin), ...names.map(({ name }) => [name])];
  for (const chart of charts.slice(0, FIRST_CHARTS))
    void client.prefetchQuery(curvesQuery(client, runId, chart, range));
}

/** The names of all groups, where they are few enough for a page: each group has its own then. */
async function namesAhead(client: QueryClient, runId: string, search: string | undefined): Promise<void> {
  const page = await client.fetchInfiniteQuery(metricNamesQuery(runId, search, undefined));
  const [all] = page.pages;
  if (!all || all.next) return;
  const groups = new Map<string, typeof all.items>();
  for (const item of all.items) {
    const group = groupOf(item.name);
    groups.set(group, [...(groups.get(group) ?? []), item]);
  }
  for (const [group, items] of groups)
    client.setQueryData(metricNamesQuery(runId, search, group).queryKey, {
      pages: [{ ...all, items }],
      pageParams: [undefined],
    });
}

/** The runs of a comparison, what they logged, and the curves of that. */
export async function compareAhead(client: QueryClient, view: Partial<CompareSearch>): Promise<void> {
  const ids = (await comparedRuns(client, view)).slice(0, MOST_RUNS);
  if (ids.length === 0) return;
  void client.prefetchQuery(detailsQuery(ids));
  const names = firstNamesQuery(ids);
  await client.prefetchInfiniteQuery(names);
  const logged = client.getQueryData(names.queryKey)?.pages.flatMap(({ items }) => items) ?? [];
  for (const name of shownNames(view, logged).slice(0, FIRST_CHARTS))
    void client.prefetchQuery(comparedCurvesQuery(curvesAsked(view, ids, name, pageWidth())));
}

async function comparedRuns(client: QueryClient, { runs, batch }: Partial<CompareSearch>): Promise<string[]> {
  const named = parseRuns(runs);
  if (named.length > 0 || !batch) return named;
  const found = batchRunsQuery(batch);
  await client.prefetchQuery(found);
  return client.getQueryData(found.queryKey)?.ids ?? [];
}
