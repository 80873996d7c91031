import { chartView } from "@/components/metrics/chart-view";
import { formatSpecs, parseSpecs } from "@/components/metrics/view";
import { flag, nonEmpty, oneOf, optional } from "@/lib/search-params";

const RUN_ID = /^run_[0-9A-HJKMNP-TV-Z]{26}$/;

/** `a,b`: ids of runs, each once. */
export function parseRuns(text: string | undefined): string[] {
  return [...new Set((text ?? "").split(",").filter((id) => RUN_ID.test(id)))];
}

export function compareSearch(search: Record<string, unknown>) {
  const runs = (value: unknown) => parseRuns(nonEmpty(value)).join(",") || undefined;
  return optional({
    ...chartView(search),
    runs: runs(search.runs),
    batch: nonEmpty(search.batch),
    /** The run that the others are held against. */
    base: parseRuns(nonEmpty(search.base))[0],
    /** Runs that are not drawn; of more than can be drawn, those that are. */
    hide: runs(search.hide),
    draw: runs(search.draw),
    /** Metrics of the charts, in their order. */
    metrics: formatSpecs(parseSpecs(nonEmpty(search.metrics))),
    /** A chart for each run instead of one for all. */
    each: flag(search.each),
    /** Rows that are the same in all runs are shown too. */
    same: flag(search.same),
    picture: oneOf(search.picture, ["lines", "points"]),
    outcome: nonEmpty(search.outcome),
    parameter: nonEmpty(search.parameter),
  });
}

export type CompareSearch = ReturnType<typeof compareSearch>;
