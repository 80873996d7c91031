/** Which curves a comparison asks for: by what stands in its address, and how wide its page is. */
import { MOST_BANDS } from "@/components/charts/drawing";
import { inOrder } from "@/components/metrics/series";
import { parseSpecs } from "@/components/metrics/view";
import { bucketsFor } from "@/components/metrics/x-axis";
import { baseOf, drawnOf, MOST_LINES } from "./drawn";
import type { CurvesAsked } from "./queries";
import type { CompareSearch } from "./search";

type Shown = Pick<CompareSearch, "x" | "from" | "to" | "metrics" | "base" | "hide" | "draw" | "each">;

/** Charts of metrics that nobody has chosen yet. */
const FIRST = 6;
/** Points of all lines of a chart: many runs are drawn in fewer buckets each, which the caption tells. */
const MOST_POINTS = 10_000;

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
  view: Partial<Shown>,
  ids: readonly string[],
  name: string,
  page: number,
): CurvesAsked {
  const { x = "step", from, to } = view;
  const most = Math.max(100, Math.floor(MOST_POINTS / ids.length / 100) * 100);
  const buckets = Math.min(most, bucketsFor(page / 2, 600));
  return { ids, name, x, from, to, buckets, banded: bandedOf(view, ids) };
}

/** The runs whose bands are drawn; `all` where each has one. Of the others a picture shows the means alone. */
function bandedOf(view: Partial<Shown>, ids: readonly string[]): readonly string[] | "all" {
  if (view.each || ids.length <= MOST_BANDS) return "all";
  const drawn = drawnOf(ids, view);
  const base = baseOf(ids, view);
  // Where the band of all is drawn it is a line as well.
  const lines = drawn.size + (ids.length > MOST_LINES ? 1 : 0);
  return lines <= MOST_BANDS ? [...drawn] : ids.filter((id) => id === base && drawn.has(id));
}
