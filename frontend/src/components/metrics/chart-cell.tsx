import { type ReactNode, useCallback, useRef } from "react";
import type { Line } from "@/components/charts/drawing";
import { LineChart, type LineChartProps } from "@/components/charts/line-chart";
import { useLiveSlot } from "@/components/charts/live-slots";
import { classNames } from "@/lib/class-names";
import { formatNumber } from "@/lib/format";
import { type ChartActions, ChartMenu } from "./chart-menu";

/** Everything around the plot: title, readout, caption. */
const AROUND_PX = 56;

/** Rows of charts are as high as lets a window hold no more than are drawn at a time. */
function plotHeight(wide: boolean): number {
  const row = Math.round(window.innerHeight / 4) - AROUND_PX;
  return wide ? Math.max(360, row * 2) : Math.min(260, Math.max(180, row));
}

interface ChartCellProps {
  /** What it draws, for tests and styles. */
  name: string;
  wide: boolean;
  /** Draws it once it is near the window. */
  children: () => ReactNode;
}

/** The place of a chart, which is drawn while it is near the window; its room stays. */
export function ChartCell({ name, wide, children }: ChartCellProps) {
  const box = useRef<HTMLDivElement>(null);
  const live = useLiveSlot(box);
  return (
    <div
      className={classNames("min-w-0", wide && "col-span-full")}
      data-live={live || undefined}
      data-metric={name}
      ref={box}
      style={{ minHeight: plotHeight(wide) + AROUND_PX }}
    >
      {live ? children() : <p className="truncate font-strong text-muted">{name}</p>}
    </div>
  );
}

type FigureProps = Omit<LineChartProps, "aside" | "height" | "formatY" | "limits" | "log"> & {
  actions: ChartActions;
  wholeLines?: (() => Promise<readonly Line[]>) | undefined;
};

/** A chart with its menu. */
export function MetricFigure({ actions, wholeLines, ...chart }: FigureProps) {
  const { log, limits, wide } = actions;
  const formatY = useCallback((value: number) => formatNumber(value), []);
  return (
    <LineChart
      {...chart}
      aside={
        <ChartMenu
          {...actions}
          picture={() => ({ ...chart, log, limits })}
          title={chart.title}
          wholeLines={wholeLines}
        />
      }
      formatY={formatY}
      height={plotHeight(wide)}
      limits={limits}
      log={log}
    />
  );
}
