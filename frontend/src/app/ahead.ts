/**
 * What pages ask for while their code is on the way. Each answer leads to the next question, so that a page which began with
 * the first would wait for all of them in turn. What fails here the page asks for again, and shows it.
 */
import type { QueryClient } from "@tanstack/react-query";
import { batchRunsQuery, detailsQuery, firstNamesQuery, MOST_RUNS } from "@/features/compare/queries";
import { type CompareSearch, parseRuns } from "@/features/compare/search";
import { opensByItself } from "@/features/run/metrics/opening";
import { metricGroupsQuery, metricNamesQuery } from "@/features/run/queries";

/** The names of the metrics that stand open. */
export async function metricsAhead(
  client: QueryClient,
  runId: string,
  { q }: { q?: string | undefined },
): Promise<void> {
  const found = metricGroupsQuery(runId, q, true);
  await client.prefetchQuery(found);
  const { groups = [] } = client.getQueryData(found.queryKey) ?? {};
  for (const group of opensByItself(groups))
    void client.prefetchInfiniteQuery(metricNamesQuery(runId, q, group));
}

/** The runs of a comparison, and what they logged. */
export async function compareAhead(
  client: QueryClient,
  { runs, batch }: Partial<CompareSearch>,
): Promise<void> {
  let ids = parseRuns(runs);
  if (ids.length === 0 && batch) {
    const found = batchRunsQuery(batch);
    await client.prefetchQuery(found);
    ids = client.getQueryData(found.queryKey)?.ids ?? [];
  }
  if (ids.length === 0) return;
  const compared = ids.slice(0, MOST_RUNS);
  void client.prefetchInfiniteQuery(firstNamesQuery(compared));
  void client.prefetchQuery(detailsQuery(compared));
}
