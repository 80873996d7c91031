import { useNavigate } from "@tanstack/react-router";
import { useRef, useState } from "react";
import type { OutcomeMetric } from "@/api/schema";
import { useSize } from "@/components/charts/use-size";
import { shortId } from "@/lib/format";
import { apartTicks, axisOf, metricAxis, textRoom } from "./axis";
import { bestOf, type Outcomes } from "./best";
import { describeOutcome } from "./parallel-plot";

const HEIGHT = 260;
const LEAST_PX = 320;
const PAD = { left: 64, right: 24, top: 12, bottom: 36 };
const BESIDE_AXIS = 8;

/** A dot for each run: one parameter along, the outcome up. */
export function ScatterPlot({
  outcomes,
  metric,
  parameter,
}: {
  outcomes: Outcomes;
  metric: OutcomeMetric;
  parameter: string;
}) {
  const navigate = useNavigate();
  const figure = useRef<HTMLElement>(null);
  const room = useSize(figure).width;
  const [pointed, setPointed] = useState<string | null>(null);
  const rows = outcomes.items.filter((row) => row.metrics[metric.name] !== undefined);
  const along = axisOf(
    parameter,
    rows.map((row) => row.parameters[parameter]),
  );
  const up = metricAxis(
    metric.name,
    rows.map((row) => row.metrics[metric.name]),
  );
  const best = bestOf(rows, metric);
  const width = Math.max(room, LEAST_PX);
  const left = Math.max(PAD.left, textRoom(up) + BESIDE_AXIS);
  const shown = rows.find((row) => row.run === pointed) ?? best;
  const x = (share: number) => left + 12 + share * (width - left - PAD.right - 24);
  const y = (share: number) => HEIGHT - PAD.bottom - 8 - share * (HEIGHT - PAD.top - PAD.bottom - 16);
  return (
    <figure className="overflow-x-auto pt-2" ref={figure}>
      <svg
        aria-label={`${metric.name} of ${rows.length} runs by ${parameter}`}
        className="block"
        height={HEIGHT}
        onPointerLeave={() => setPointed(null)}
        role="img"
        viewBox={`0 0 ${width} ${HEIGHT}`}
        width={width}
      >
        {up.ticks.map((tick) => (
          <g key={tick.text}>
            <line
              className="stroke-(--line)"
              x1={left}
              x2={width - PAD.right}
              y1={y(tick.at)}
              y2={y(tick.at)}
            />
            <text
              className="pointer-events-none fill-(--muted) stroke-(--bg) stroke-4 text-[10px] [paint-order:stroke]"
              dominantBaseline="middle"
              textAnchor="end"
              x={left - BESIDE_AXIS}
              y={y(tick.at)}
            >
              {tick.text}
            </text>
          </g>
        ))}
        {apartTicks(along, x).map((tick) => (
          <text
            className="pointer-events-none fill-(--muted) stroke-(--bg) stroke-4 text-[10px] [paint-order:stroke]"
            key={tick.text}
            textAnchor="middle"
            x={x(tick.at)}
            y={HEIGHT - PAD.bottom + 14}
          >
            {tick.text}
          </text>
        ))}
        <text className="fill-(--text) text-[11px]" textAnchor="end" x={width - PAD.right} y={HEIGHT - 4}>
          {parameter}
        </text>
        <line
          className="stroke-(--line-strong)"
          x1={left}
          x2={width - PAD.right}
          y1={HEIGHT - PAD.bottom}
          y2={HEIGHT - PAD.bottom}
        />
        {rows.map((row) => {
          const [left, top] = [along.at(row.parameters[parameter]), up.at(row.metrics[metric.name])];
          if (left === null || top === null) return null;
          const on = row.run === shown?.run;
          return (
            // biome-ignore lint/a11y/noStaticElementInteractions: the table below has the same links for the keyboard
            <circle
              className={on ? "cursor-pointer fill-(--accent)" : "cursor-pointer fill-(--muted)"}
              cx={x(left)}
              cy={y(top)}
              key={row.run}
              onClick={() => void navigate({ to: "/runs/$runId/metrics", params: { runId: row.run } })}
              onPointerEnter={() => setPointed(row.run)}
              opacity={on ? 1 : 0.6}
              r={on ? 5 : 4}
            />
          );
        })}
      </svg>
      <figcaption className="text-muted text-xs">
        {shown
          ? `${shown.run === best?.run ? "Best, " : ""}${shortId(shown.run)}: ${describeOutcome(shown, outcomes.parameters, metric.name)}`
          : ""}
      </figcaption>
    </figure>
  );
}
