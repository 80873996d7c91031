import type { Outcome as OutcomeAsSent, OutcomeMetric, Outcomes as OutcomesAsSent } from "@/api/schema";
import type { UserNumber } from "@/lib/wire-numbers";

/** An outcome as `EXACT` reads it. */
export type Outcome = Omit<OutcomeAsSent, "metrics"> & { metrics: Record<string, UserNumber> };
export type Outcomes = Omit<OutcomesAsSent, "items"> & { items: Outcome[] };

/** The run that is best by the metric; undefined where none has it. */
export function bestOf(rows: readonly Outcome[], metric: OutcomeMetric): Outcome | undefined {
  const lower = metric.better === "lower";
  let best: Outcome | undefined;
  for (const row of rows) {
    const value = row.metrics[metric.name];
    const reached = best?.metrics[metric.name];
    if (value === undefined) continue;
    if (reached === undefined || (lower ? value < reached : value > reached)) best = row;
  }
  return best;
}
