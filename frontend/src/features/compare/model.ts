import type { OutcomeMetric, Run } from "@/api/schema";
import { isTerminal } from "@/api/states";
import type { Line } from "@/components/charts/drawing";
import { curveOf } from "@/components/metrics/series";
import type { Outcomes } from "@/components/outcomes/best";
import { usedParameters } from "@/components/runs/parameters";
import { shortId } from "@/lib/format";
import { baseOf, drawnOf, MOST_LINES } from "./drawn";
import { bandOf } from "./quantiles";
import type { Curves } from "./queries";
import type { CompareSearch } from "./search";
import { differing, labelOf, numbersOf } from "./table";

/** A run of the comparison, with how it is drawn and called everywhere on the page. */
export interface Compared {
  id: string;
  run: Run | undefined;
  label: string;
  style: number;
  drawn: boolean;
  base: boolean;
}

export function comparedOf(ids: readonly string[], runs: readonly Run[], search: CompareSearch): Compared[] {
  const byId = new Map(runs.map((run) => [run.id, run]));
  const names = differing(runs);
  const [base, drawn] = [baseOf(ids, search), drawnOf(ids, search)];
  return ids.map((id, style) => {
    const run = byId.get(id);
    return {
      id,
      run,
      label: run ? labelOf(run, names, shortId(id)) : shortId(id),
      style,
      drawn: drawn.has(id),
      base: id === base,
    };
  });
}

/** The lines of one metric: each drawn run, and where they are too many the band of all. */
export function linesOf(curves: Curves, compared: readonly Compared[], name: string): Line[] {
  const byRun = new Map(curves.curves.map((curve) => [curve.run, curve]));
  const gaps = new Map(curves.runs.map((run) => [run.run, run.gaps]));
  const lines = compared.flatMap(({ id, label, style, drawn, base }) => {
    const curve = byRun.get(id);
    if (!curve || !drawn) return [];
    const columns = curveOf({ ...curve, name, bucket_width: curves.width }, gaps.get(id) ?? []);
    return [{ id, label, style, columns, strong: base && compared.length > 1 }];
  });
  if (compared.length <= MOST_LINES) return lines;
  const label = `median of ${curves.curves.length} runs, band from the 10th to the 90th of 100`;
  return [{ id: "band", label, style: null, columns: bandOf(curves.curves), strong: true }, ...lines];
}

/** The runs as a table of outcomes, to be drawn by parameter. */
export function outcomesOf(compared: readonly Compared[]): Outcomes {
  const runs = compared.flatMap(({ run }) => run ?? []);
  const results = runs.map((run) => numbersOf(run.result));
  const having = new Map<string, number>();
  for (const name of results.flatMap((result) => Object.keys(result)))
    having.set(name, (having.get(name) ?? 0) + 1);
  // The first is drawn unless asked: one that most runs have, of these the one that comes first.
  const metrics = [...having.keys()].sort((a, b) => (having.get(b) ?? 0) - (having.get(a) ?? 0));
  return {
    total: runs.length,
    parameters: differing(runs),
    metrics: metrics.map((name): OutcomeMetric => ({ name, better: betterOf(name) })),
    items: runs.map((run, index) => ({
      index,
      run: run.id,
      state: run.state,
      reason: isTerminal(run.state) ? (run.reason?.code ?? null) : null,
      parameters: usedParameters(run),
      metrics: results[index] ?? {},
      duration_s: null,
    })),
  };
}

/** Of a loss or an error less is better. */
function betterOf(name: string): OutcomeMetric["better"] {
  return /loss|err|nll|perplexity|mse|mae/i.test(name) ? "lower" : "higher";
}
