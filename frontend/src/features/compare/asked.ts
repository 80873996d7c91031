/** Which curves a comparison asks for: by what stands in its address, and how wide its page is. */
import { inOrder } from "@/components/metrics/series";
import { parseSpecs } from "@/components/metrics/view";
import { bucketsFor } from "@/components/metrics/x-axis";
import type { CurvesAsked } from "./queries";
import type { CompareSearch } from "./search";

type Shown = Pick<CompareSearch, "x" | "from" | "to" | "metrics">;

/** Charts of metrics that nobody has chosen yet. */
const FIRST = 6;
/** Points of all lines of a chart: many runs are drawn in fewer buckets each, which the caption tells. */
const MOST_POINTS = 20_000;

/** The metrics that are drawn: those that are chosen, else the first of what the runs logged. */
export function shownNames(
  view: Partial<Shown>,
  logged: readonly { name: string; runs: number }[],
): string[] {
  const chosen = parseSpecs(view.metrics).flat();
  return chosen.length > 0 ? chosen : firstOf(logged);
}

/** What most runs share comes first; how fast they are only where nothing else was logged. */
function firstOf(items: readonly { name: string; runs: number }[]): string[] {
  const own = items.filter(({ name }) => !name.startsWith("sys/"));
  const most = inOrder(own.length > 0 ? own : items).sort((a, b) => b.runs - a.runs);
  return most.slice(0, FIRST).map(({ name }) => name);
}

/** One metric of all runs, as it is drawn on a page of this width. */
export function curvesAsked(
  { x = "step", from, to }: Partial<Shown>,
  ids: readonly string[],
  name: string,
  page: number,
): CurvesAsked {
  const most = Math.max(100, Math.floor(MOST_POINTS / ids.length / 100) * 100);
  return { ids, name, x, from, to, buckets: Math.min(most, bucketsFor(page / 2, 600)) };
}
