import { Link } from "@tanstack/react-router";
import { useCallback } from "react";
import { Button } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { Segmented } from "@/components/ui/segmented";
import type { ChartView } from "./chart-view";
import { SmoothingField } from "./smoothing-field";
import { ALL } from "./view";
import { X_CHOICES } from "./x-axis";

interface ViewControlsProps {
  view: ChartView;
  change: (next: ChartView) => void;
  formatX: (x: number) => string;
}

/** What all charts of a page share: axis, scale, smoothing, and what is zoomed to. */
export function ViewControls({ view, change, formatX }: ViewControlsProps) {
  const { x = "step", from, to, log } = view;
  const smooth = useCallback((value: number) => change({ smooth: value || undefined }), [change]);
  return (
    <>
      <Segmented
        choices={X_CHOICES}
        label="Over"
        onChange={(next) =>
          change({ x: next === "step" ? undefined : next, from: undefined, to: undefined, at: undefined })
        }
        value={x}
      />
      <Segmented
        choices={[
          { value: "linear", label: "Linear" },
          { value: "log", label: "Log" },
        ]}
        label="Scale"
        onChange={(next) => change({ log: next === "log" ? ALL : undefined })}
        value={log === ALL ? "log" : "linear"}
      />
      <SmoothingField onChange={smooth} value={view.smooth ?? 0} />
      {from !== undefined && to !== undefined ? (
        <Button compact look="quiet" onClick={() => change({ from: undefined, to: undefined })}>
          <Icon name="close" size={12} />
          {x === "step" ? "step " : ""}
          {formatX(from)} to {formatX(to)}
        </Button>
      ) : (
        <span className="text-muted text-xs max-sm:hidden">Drag a chart to zoom.</span>
      )}
    </>
  );
}

interface PickedPlaceProps {
  at: number;
  axis: "step" | "time" | "relative";
  formatX: (x: number) => string;
  /** Runs whose reductions can be opened at the place. */
  runs: readonly { id: string; label: string }[];
  onClose: () => void;
}

/** The place of x that is kept: its name, and the way to the reductions of that step. */
export function PickedPlace({ at, axis, formatX, runs, onClose }: PickedPlaceProps) {
  return (
    <div
      className="sticky top-12 z-10 mb-4 flex flex-wrap items-center gap-x-4 gap-y-1 border-accent border-l-2 bg-surface px-3 py-1.5"
      data-testid="picked-place"
    >
      <span className="font-strong">
        {axis === "step" ? "Step " : ""}
        {formatX(at)}
      </span>
      {axis === "step" ? (
        runs.map(({ id, label }) => (
          <Link
            className="link"
            key={id}
            params={{ runId: id }}
            search={{ near: Math.round(at) }}
            to="/runs/$runId/reductions"
          >
            {runs.length > 1 ? `Reductions of ${label}` : "Reductions of this step"}
          </Link>
        ))
      ) : (
        <span className="text-muted">Over steps it leads to the reductions of one.</span>
      )}
      <Button className="ml-auto" compact look="quiet" onClick={onClose}>
        <Icon name="close" size={12} />
        Let go
      </Button>
    </div>
  );
}
