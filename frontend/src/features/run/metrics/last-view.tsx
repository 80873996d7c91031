import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { runQuery } from "@/api/queries";
import { type ChartView, chartView } from "@/components/metrics/chart-view";
import { parseLimits, parseSpecs } from "@/components/metrics/view";
import { Button } from "@/components/ui/button";
import { count } from "@/lib/format";

const STORAGE_KEY = "drumline.chart-views.1";
const MOST_JOBS = 50;
const LONGEST = 4_000;

/** What one run's charts can have of another's: not the place that is zoomed to, which is in steps of that run. */
type Kept = Pick<ChartView, "x" | "pin" | "wide" | "log" | "y" | "smooth">;

interface LastViewProps {
  runId: string;
  view: ChartView;
  change: (next: ChartView) => void;
}

/** Shows a run's charts as those of its job were last shown in this browser. The address stays what says how they are shown. */
export function LastView({ runId, view, change }: LastViewProps) {
  const job = useQuery(runQuery(runId)).data?.job;
  const { x, pin, wide, log, y, smooth } = view;
  const isPlain = (x ?? pin ?? wide ?? log ?? y ?? smooth) === undefined;
  const [last, setLast] = useState<Kept | null>(null);
  useEffect(() => {
    if (!job) return;
    if (!isPlain) keepView(job, { x, pin, wide, log, y, smooth });
    setLast(lastView(job));
  }, [job, isPlain, x, pin, wide, log, y, smooth]);
  if (!job || !isPlain || !last) return null;
  return (
    <Button
      compact
      look="quiet"
      onClick={() => change(last)}
      title={`As charts of ${job} were last shown here: ${inWords(last)}`}
    >
      Last view
    </Button>
  );
}

/** Of the jobs that were shown last; one that has been shown goes to the end. */
function stored(): Map<string, unknown> {
  try {
    const read: unknown = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "[]");
    return new Map(Array.isArray(read) ? read.filter((one) => Array.isArray(one) && one.length === 2) : []);
  } catch {
    return new Map();
  }
}

export function keepView(job: string, view: Kept): void {
  const views = stored();
  views.delete(job);
  if (JSON.stringify(view).length <= LONGEST) views.set(job, view);
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify([...views].slice(-MOST_JOBS)));
  } catch {
    // Full or switched off: the address has it all the same.
  }
}

/** Read as an address is: whatever else writes there shows nothing that no address could. */
export function lastView(job: string): Kept | null {
  const found = stored().get(job);
  if (typeof found !== "object" || found === null) return null;
  const { x, pin, wide, log, y, smooth } = chartView(found as Record<string, unknown>);
  const kept = { x, pin, wide, log, y, smooth };
  return Object.values(kept).some((one) => one !== undefined) ? kept : null;
}

function inWords({ x, pin, wide, log, y, smooth }: Kept): string {
  const pins = parseSpecs(pin).length;
  const limits = parseLimits(y).size;
  return [
    pins > 0 && `${count(pins, "chart")} pinned`,
    wide && "wide charts",
    x && x !== "step" && `over ${x === "time" ? "time" : "time since the start"}`,
    log && "log scale",
    limits > 0 && `limits of ${count(limits, "chart")}`,
    smooth && `smoothing ${smooth}`,
  ]
    .filter(Boolean)
    .join(", ");
}
