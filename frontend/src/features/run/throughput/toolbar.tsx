import { useMutation } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import type { MetricSeries } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { Segmented } from "@/components/ui/segmented";
import { formatNumber } from "@/lib/format";
import { AttemptSelect } from "../attempt-select";
import { fetchMetrics } from "../queries";
import { csvOf, exportWindows, MAX_BUCKETS } from "./csv";
import { saveText } from "./save";

const route = getRouteApi("/runs/$runId/throughput");

export function Toolbar({ runId, series }: { runId: string; series: readonly MetricSeries[] }) {
  const { x = "step", from, to, log, attempt } = route.useSearch();
  const navigate = route.useNavigate();
  const change = (next: Partial<ReturnType<typeof route.useSearch>>) =>
    void navigate({ search: (old) => ({ ...old, ...next }), replace: true, resetScroll: false });
  const exportCsv = useMutation({
    mutationFn: async () =>
      saveText(`${runId}-metrics.csv`, "text/csv", csvOf(await everyStep(runId, attempt, series))),
  });
  return (
    <div className="mb-5 flex flex-wrap items-center gap-x-6 gap-y-2">
      <Segmented
        choices={[
          { value: "step", label: "Step" },
          { value: "time", label: "Time" },
        ]}
        label="Over"
        onChange={(next) => change({ x: next === "step" ? undefined : next, from: undefined, to: undefined })}
        value={x}
      />
      <Segmented
        choices={[
          { value: "linear", label: "Linear" },
          { value: "log", label: "Log" },
        ]}
        label="Scale"
        onChange={(next) => change({ log: next === "log" ? true : undefined })}
        value={log ? "log" : "linear"}
      />
      <AttemptSelect
        attempt={attempt}
        onChoose={(id) => change({ attempt: id, from: undefined, to: undefined })}
        runId={runId}
      />
      {from !== undefined && to !== undefined ? (
        <Button compact look="quiet" onClick={() => change({ from: undefined, to: undefined })}>
          <Icon name="close" size={12} />
          {x} {formatNumber(from)} to {formatNumber(to)}
        </Button>
      ) : (
        <span className="text-muted text-xs">Drag over a chart to zoom in.</span>
      )}
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

/** All values in full resolution, window by window. */
async function everyStep(
  runId: string,
  attempt: string | undefined,
  series: readonly MetricSeries[],
): Promise<MetricSeries[][]> {
  const last = series.reduce((most, { last_step }) => Math.max(most, last_step), 0);
  const pages: MetricSeries[][] = [];
  for (const { from, to } of exportWindows(0, last)) {
    pages.push((await fetchMetrics(runId, { x: "step", from, to, attempt, buckets: MAX_BUCKETS })).series);
  }
  return pages;
}
