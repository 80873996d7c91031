import type { Outcome, OutcomeMetric } from "@/api/schema";

/** The run that is best by the metric; undefined where none has it. */
export function bestOf(rows: readonly Outcome[], metric: OutcomeMetric): Outcome | undefined {
  const sign = metric.better === "lower" ? -1 : 1;
  let best: Outcome | undefined;
  for (const row of rows) {
    const value = row.metrics[metric.name];
    const reached = best?.metrics[metric.name];
    if (value !== undefined && (reached === undefined || sign * value > sign * reached)) best = row;
  }
  return best;
}
