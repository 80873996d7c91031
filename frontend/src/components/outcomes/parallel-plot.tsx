import { useNavigate } from "@tanstack/react-router";
import { useRef, useState } from "react";
import type { OutcomeMetric } from "@/api/schema";
import { useSize } from "@/components/charts/use-size";
import { classNames } from "@/lib/class-names";
import { formatValue, shortId } from "@/lib/format";
import { exactText } from "@/lib/wire-numbers";
import { type Axis, axisOf, metricAxis, textRoom } from "./axis";
import { bestOf, type Outcome, type Outcomes } from "./best";

const HEIGHT = 260;
/** Narrower, axes' names would touch: the picture scrolls. */
const LEAST_AXIS_PX = 110;
const PAD = { left: 56, right: 72, top: 30, bottom: 14 };
const BESIDE_AXIS = 8;

/** A line for each run over an axis for each parameter; the last axis is the outcome, and the best run stands out. */
export function ParallelPlot({ outcomes, metric }: { outcomes: Outcomes; metric: OutcomeMetric }) {
  const navigate = useNavigate();
  const figure = useRef<HTMLElement>(null);
  const room = useSize(figure).width;
  const [pointed, setPointed] = useState<string | null>(null);
  const rows = outcomes.items.filter((row) => row.metrics[metric.name] !== undefined);
  const best = bestOf(rows, metric);
  const axes = [
    ...outcomes.parameters.map((name) =>
      axisOf(
        name,
        rows.map((row) => row.parameters[name]),
      ),
    ),
    metricAxis(
      metric.name,
      rows.map((row) => row.metrics[metric.name]),
    ),
  ];
  const [left, right] = [axes[0], axes.at(-1)].map((axis) => (axis ? textRoom(axis) + BESIDE_AXIS : 0));
  const pad = { left: Math.max(PAD.left, left ?? 0), right: Math.max(PAD.right, right ?? 0) };
  const width = Math.max(room, axes.length * LEAST_AXIS_PX);
  const shown = rows.find((row) => row.run === pointed) ?? best;
  const x = (at: number) => pad.left + (at / (axes.length - 1)) * (width - pad.left - pad.right);
  return (
    <figure className="overflow-x-auto pt-2" ref={figure}>
      <svg
        aria-label={`Parallel coordinates of ${rows.length} runs: ${axes.map(({ name }) => name).join(", ")}`}
        className="block"
        height={HEIGHT}
        onPointerLeave={() => setPointed(null)}
        role="img"
        viewBox={`0 0 ${width} ${HEIGHT}`}
        width={width}
      >
        {rows.map((row) => (
          // biome-ignore lint/a11y/noStaticElementInteractions: the table below has the same links for the keyboard
          <path
            className={classNames(
              "cursor-pointer fill-none",
              row.run === shown?.run ? "stroke-(--accent)" : "stroke-(--muted)",
            )}
            d={lineOf(row, axes, outcomes.parameters, metric.name, x)}
            key={row.run}
            onClick={() => void navigate({ to: "/runs/$runId/metrics", params: { runId: row.run } })}
            onPointerEnter={() => setPointed(row.run)}
            opacity={row.run === shown?.run ? 1 : rows.length > 100 ? 0.15 : 0.4}
            strokeLinejoin="round"
            strokeWidth={row.run === shown?.run ? 2 : 1}
          />
        ))}
        {axes.map((axis, at) => (
          <AxisMark axis={axis} key={axis.name} last={at === axes.length - 1} x={x(at)} />
        ))}
      </svg>
      <figcaption className="text-muted text-xs">
        {shown
          ? `${shown.run === best?.run ? "Best, " : ""}${shortId(shown.run)}: ${describeOutcome(shown, outcomes.parameters, metric.name)}`
          : ""}
      </figcaption>
    </figure>
  );
}

function AxisMark({ axis, x, last }: { axis: Axis; x: number; last: boolean }) {
  return (
    <g>
      <line className="stroke-(--line-strong)" x1={x} x2={x} y1={PAD.top} y2={HEIGHT - PAD.bottom} />
      <text className="fill-(--text) text-[11px]" textAnchor="middle" x={x} y={14}>
        {axis.name.length > 22 ? `${axis.name.slice(0, 21)}…` : axis.name}
      </text>
      {axis.ticks.map((tick) => (
        <text
          className="pointer-events-none fill-(--muted) stroke-(--bg) stroke-4 text-[10px] [paint-order:stroke]"
          dominantBaseline="middle"
          key={tick.text}
          textAnchor={last ? "start" : "end"}
          x={last ? x + 7 : x - 7}
          y={y(tick.at)}
        >
          {tick.text}
        </text>
      ))}
    </g>
  );
}

/** A run that lacks a parameter skips its axis. */
function lineOf(
  row: Outcome,
  axes: readonly Axis[],
  parameters: readonly string[],
  metric: string,
  x: (at: number) => number,
): string {
  const points = axes.map((axis, at) => {
    const name = parameters[at];
    const share = axis.at(name === undefined ? row.metrics[metric] : row.parameters[name]);
    return share === null ? null : `${x(at).toFixed(1)},${y(share).toFixed(1)}`;
  });
  return `M${points.filter((point) => point !== null).join("L")}`;
}

function y(share: number): number {
  return HEIGHT - PAD.bottom - share * (HEIGHT - PAD.top - PAD.bottom);
}

export function describeOutcome(row: Outcome, parameters: readonly string[], metric: string): string {
  const given = parameters
    .filter((name) => row.parameters[name] !== undefined)
    .map((name) => `${name}=${exactText(row.parameters[name])}`);
  const reached = row.metrics[metric];
  return `${metric} ${reached === undefined ? "not reported" : formatValue(reached)} with ${given.join(", ")}`;
}
