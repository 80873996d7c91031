import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import { keys } from "@/api/queries";
import type { PlanComparison, PlanDifference } from "@/api/schema";
import { Chips } from "@/components/plan/chips";
import { ScrollBox } from "@/components/ui/scroll-box";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { classNames } from "@/lib/class-names";
import { count } from "@/lib/format";
import { runEndedQuery } from "../queries";

const route = getRouteApi("/runs/$runId");
const HEADS = [
  { head: "Name", width: "w-64" },
  { head: "Verdict", width: "w-36" },
  { head: "Planned", width: "" },
  { head: "In the run", width: "" },
];
const LOOK_EVERY_MS = 3_000;
const TITLES: Record<PlanDifference["about"], string> = {
  replica: "Placement",
  variable: "Variables",
  batch: "Batch per replica",
  collective: "Reductions",
};
const VERDICTS: Record<PlanDifference["verdict"], { word: string; tone: string }> = {
  same: { word: "as planned", tone: "text-ok" },
  different: { word: "different", tone: "text-bad" },
  missing: { word: "did not happen", tone: "text-bad" },
  not_planned: { word: "not planned", tone: "text-bad" },
  not_recorded: { word: "not recorded", tone: "text-muted" },
};

/** Did it do what was planned? */
export function PlanTab() {
  const { runId } = route.useParams();
  const ended = useQuery(runEndedQuery(runId)).data === true;
  const comparison = useQuery({
    queryKey: [...keys.run(runId), "plan", ended],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/runs/{run_id}/plan", { params: { path: { run_id: runId } }, signal })),
    placeholderData: (previous) => previous,
    refetchInterval: ended ? false : LOOK_EVERY_MS,
  });
  if (!comparison.data) {
    return comparison.error ? (
      <ErrorState
        error={comparison.error}
        onRetry={() => void comparison.refetch()}
        what="The plan could not be loaded"
      />
    ) : (
      <SkeletonRows label="the plan" />
    );
  }
  return <Comparison comparison={comparison.data} />;
}

function Comparison({ comparison }: { comparison: PlanComparison }) {
  const { on } = comparison.plan;
  if (on) {
    const chips = comparison.plan.program?.chips;
    return (
      <div className="space-y-2" data-testid="plan-comparison">
        <p role="status">
          The plan is one for {on}, compiled and not run: there is nothing to compare the run with.
        </p>
        {chips ? <Chips chips={chips} /> : <p className="text-muted">{comparison.plan.probe.message}</p>}
      </div>
    );
  }
  const groups = Map.groupBy(comparison.rows, (row) => row.about);
  const same = comparison.rows.filter((row) => row.verdict === "same").length;
  return (
    <div className="space-y-7" data-differences={comparison.differences} data-testid="plan-comparison">
      <p role="status">
        {comparison.differences === 0 ? (
          <span className="text-ok">Nothing differs from the plan: </span>
        ) : (
          <span className="text-bad">{count(comparison.differences, "difference")} from the plan: </span>
        )}
        {same} of {comparison.rows.length} as planned.
        <span className="text-muted">
          {" "}
          Reductions are recorded in some steps only; the plan saw the first ones.
        </span>
      </p>
      {[...groups].map(([about, rows]) => (
        <Section key={about} title={TITLES[about]}>
          <Rows rows={rows} />
        </Section>
      ))}
    </div>
  );
}

function Rows({ rows }: { rows: readonly PlanDifference[] }) {
  return (
    <ScrollBox>
      <table className="w-full min-w-3xl table-fixed">
        <thead>
          <tr className="border-line border-b text-left text-muted text-xs">
            {HEADS.map(({ head, width }) => (
              <th className={classNames("h-7 pr-6 font-normal last:pr-0", width)} key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: several reductions share a name, and rows never move
            <tr className="border-line border-b align-baseline" key={i}>
              <td className="truncate py-1.5 pr-6 font-mono text-xs" title={row.name}>
                {row.name}
              </td>
              <td className={classNames("whitespace-nowrap pr-6", VERDICTS[row.verdict].tone)}>
                {VERDICTS[row.verdict].word}
              </td>
              <td className="pr-6 text-xs">{row.planned || "–"}</td>
              <td className="text-xs">
                {row.verdict === "same" ? <span className="text-muted">the same</span> : row.actual || "–"}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}
