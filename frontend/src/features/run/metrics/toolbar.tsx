import { useMutation } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useDeferredValue, useEffect, useState } from "react";
import type { MetricGroups, MetricSeries } from "@/api/schema";
import { saveText } from "@/components/charts/save";
import { csvOf, exportWindows, MAX_BUCKETS } from "@/components/metrics/csv";
import { ViewControls } from "@/components/metrics/view-controls";
import { Button } from "@/components/ui/button";
import { AttemptSelect } from "../attempt-select";
import { fetchMetrics } from "../queries";
import { LastView } from "./last-view";

const route = getRouteApi("/runs/$runId/metrics");

interface ToolbarProps {
  runId: string;
  groups: MetricGroups;
  formatX: (x: number) => string;
  change: (next: ReturnType<typeof route.useSearch>) => void;
}

export function Toolbar({ runId, groups, formatX, change }: ToolbarProps) {
  const view = route.useSearch();
  const { attempt } = view;
  const exportCsv = useMutation({
    mutationFn: async () =>
      saveText(
        `${runId}-metrics.csv`,
        "text/csv",
        csvOf(await everyStep(runId, attempt, groups.last_step ?? 0)),
      ),
  });
  return (
    <div className="mb-5 flex flex-wrap items-center gap-x-5 gap-y-2">
      <NameSearch onChange={(q) => change({ q: q || undefined })} value={view.q ?? ""} />
      <ViewControls change={change} formatX={formatX} view={view} />
      <LastView change={change} runId={runId} view={view} />
      <AttemptSelect
        attempt={attempt}
        onChoose={(id) => change({ attempt: id, from: undefined, to: undefined })}
        runId={runId}
      />
      <div className="ml-auto flex items-center gap-3">
        {exportCsv.error && (
          <span className="text-bad text-xs" role="alert">
            The export failed.
          </span>
        )}
        <Button compact disabled={exportCsv.isPending} onClick={() => exportCsv.mutate()}>
          {exportCsv.isPending ? "Exporting…" : "CSV, every step"}
        </Button>
      </div>
    </div>
  );
}

/** What the names must hold; the address follows as it is typed. */
function NameSearch({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  const [text, setText] = useState(value);
  const settled = useDeferredValue(text);
  useEffect(() => setText(value), [value]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: only what is typed goes to the address
  useEffect(() => {
    if (settled !== value) onChange(settled);
  }, [settled]);
  return (
    <input
      aria-label="Find metrics"
      className="h-7 w-44 rounded-control border border-line-strong bg-bg px-2"
      maxLength={200}
      onChange={(event) => setText(event.target.value)}
      placeholder="Find metrics"
      type="search"
      value={text}
    />
  );
}

/** All values in full resolution, window by window. */
async function everyStep(
  runId: string,
  attempt: string | undefined,
  last: number,
): Promise<MetricSeries[][]> {
  const pages: MetricSeries[][] = [];
  for (const { from, to } of exportWindows(0, last)) {
    pages.push((await fetchMetrics(runId, { x: "step", from, to, attempt, buckets: MAX_BUCKETS })).series);
  }
  return pages;
}
