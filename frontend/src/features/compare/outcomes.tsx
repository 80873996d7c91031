import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { ParallelPlot } from "@/components/outcomes/parallel-plot";
import { ScatterPlot } from "@/components/outcomes/scatter-plot";
import { Section } from "@/components/ui/section";
import { Segmented } from "@/components/ui/segmented";
import { Select } from "@/components/ui/select";
import { type Compared, outcomesOf } from "./model";
import type { CompareSearch } from "./search";

const route = getRouteApi("/compare");

interface OutcomesProps {
  compared: readonly Compared[];
  change: (next: Partial<CompareSearch>) => void;
}

/** How the results depend on the parameters by which the runs differ; nothing where there are none. */
export function Outcomes({ compared, change }: OutcomesProps) {
  const search = route.useSearch();
  const outcomes = useMemo(() => outcomesOf(compared), [compared]);
  const metric = outcomes.metrics.find(({ name }) => name === search.outcome) ?? outcomes.metrics[0];
  if (!metric || outcomes.parameters.length === 0 || outcomes.items.length < 2) return null;
  const picture = search.picture ?? (outcomes.parameters.length > 1 ? "lines" : "points");
  const parameter =
    outcomes.parameters.find((name) => name === search.parameter) ?? outcomes.parameters[0] ?? "";
  return (
    <Section
      aside={
        <>
          {picture === "points" && outcomes.parameters.length > 1 && (
            <Select
              choices={outcomes.parameters.map((name) => ({ value: name, label: name }))}
              compact
              label="Parameter"
              onChange={(name) => change({ parameter: name })}
              value={parameter}
            />
          )}
          <Select
            choices={outcomes.metrics.map(({ name, better }) => ({
              value: name,
              label: name,
              note: `${better} is better`,
            }))}
            compact
            label="Outcome"
            onChange={(name) => change({ outcome: name })}
            value={metric.name}
          />
          <Segmented
            choices={[
              { value: "lines", label: "Lines" },
              { value: "points", label: "Points" },
            ]}
            label=""
            onChange={(value) => change({ picture: value })}
            value={picture}
          />
        </>
      }
      title="Outcome by parameter"
    >
      {picture === "lines" ? (
        <ParallelPlot metric={metric} outcomes={outcomes} />
      ) : (
        <ScatterPlot metric={metric} outcomes={outcomes} parameter={parameter} />
      )}
    </Section>
  );
}
