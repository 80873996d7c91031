import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import type { ReductionSummary } from "@/api/schema";
import { LineMark } from "@/components/charts/line-mark";
import { Section } from "@/components/ui/section";
import { Select } from "@/components/ui/select";
import { formatInteger, formatNumber } from "@/lib/format";
import { fromWire } from "@/lib/wire-numbers";
import type { Compared } from "./model";

interface StepReductionsProps {
  compared: readonly Compared[];
  step: number;
}

interface Found {
  name: string;
  steps: number[];
}

/** One reduction of each run, at the step that is kept or the recorded one nearest to it. */
export function StepReductions({ compared, step }: StepReductionsProps) {
  const [wanted, setWanted] = useState<string | null>(null);
  const names = useQueries({
    queries: compared.map(({ id }) => ({
      queryKey: ["run", id, "reductions", "names", undefined],
      queryFn: async ({ signal }: { signal: AbortSignal }): Promise<Found[]> => {
        const params = { path: { run_id: id }, query: {} };
        return (await body(api.GET("/api/v1/runs/{run_id}/reductions/names", { params, signal }))).names;
      },
    })),
  });
  const all = [...new Set(names.flatMap(({ data }) => data?.map(({ name }) => name) ?? []))];
  const name = wanted !== null && all.includes(wanted) ? wanted : all[0];
  if (name === undefined) return null;
  return (
    <Section
      aside={
        <Select
          choices={all.map((value) => ({ value, label: value }))}
          compact
          label="Reduction"
          onChange={setWanted}
          value={name}
        />
      }
      className="pt-6"
      title={`Reductions at step ${formatInteger(step)}`}
    >
      <table aria-label="Reductions at the step" className="mt-2 border-collapse">
        <thead>
          <tr className="text-left text-muted text-xs">
            {["Run", "Step", "Operation", "Result"].map((head) => (
              <th className="h-8 pr-6 font-normal" key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {compared.map((one, at) => (
            <ReductionRow
              key={one.id}
              name={name}
              one={one}
              step={nearest(names[at]?.data?.find((each) => each.name === name)?.steps ?? [], step)}
            />
          ))}
        </tbody>
      </table>
    </Section>
  );
}

function ReductionRow({ one, name, step }: { one: Compared; name: string; step: number | null }) {
  const [answer] = useQueries({
    queries: [
      {
        queryKey: ["run", one.id, "reductions", "at", name, step, undefined],
        queryFn: async ({ signal }: { signal: AbortSignal }): Promise<ReductionSummary[]> => {
          const query = { name, step_from: step ?? 0, step_to: step ?? 0, limit: 200 };
          const params = { path: { run_id: one.id }, query };
          return (await body(api.GET("/api/v1/runs/{run_id}/reductions", { params, signal }))).items;
        },
        enabled: step !== null,
      },
    ],
  });
  const found = answer?.data?.at(-1);
  return (
    <tr className="border-line border-b">
      <th className="h-8 pr-6 text-left font-normal" scope="row">
        <span className="flex items-center gap-1.5">
          <LineMark style={one.style} />
          {one.label}
        </span>
      </th>
      <td className="pr-6">
        {step === null ? (
          <span className="text-muted">none recorded</span>
        ) : (
          <Link
            className="link"
            params={{ runId: one.id }}
            search={{ var: name, step }}
            to="/runs/$runId/reductions"
          >
            {formatInteger(step)}
          </Link>
        )}
      </td>
      <td className="pr-6">{found?.op ?? "–"}</td>
      <td>{found ? resultText(found) : "–"}</td>
    </tr>
  );
}

function resultText({ result, result_shape }: ReductionSummary): string {
  const value = fromWire(result);
  return value === null ? `shape (${result_shape.join(", ")})` : formatNumber(value, 6);
}

function nearest(steps: readonly number[], wanted: number): number | null {
  return steps.reduce<number | null>(
    (best, step) => (best === null || Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best),
    null,
  );
}
