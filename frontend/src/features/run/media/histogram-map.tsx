import type { HistogramSteps, HistogramValue } from "@/api/schema";
import { formatInteger, formatNumber } from "@/lib/format";
import { heatMapOf, LEVELS, levelOf } from "./heat";

const ROWS = 48;
const HEIGHT = 144;

/** Histograms over steps, a column each: the darker, the more of its values. The chosen step is marked. */
export function HistogramMap({ found, step }: { found: HistogramSteps; step: number }) {
  const map = heatMapOf(found.histograms, ROWS);
  if (!map) return <p className="py-3 text-muted">No finite value at any step.</p>;
  const { columns } = map;
  const most = Math.max(...columns.flat());
  const chosen = Math.max(
    0,
    found.steps.findLastIndex((each) => each <= step),
  );
  const paths = Array.from({ length: LEVELS }, (_, level) => pathOf(columns, most, level + 1));
  const thinned = found.values > found.steps.length;
  return (
    <figure className="min-w-0">
      <div className="grid grid-cols-[auto_minmax(0,1fr)] gap-x-2">
        <div className="flex flex-col justify-between text-right text-2xs text-muted">
          <span>{formatNumber(map.high)}</span>
          <span>{formatNumber(map.low)}</span>
        </div>
        <svg
          aria-label={`Histograms of ${found.name} at ${columns.length} steps, values from ${formatNumber(map.low)} to ${formatNumber(map.high)}`}
          className="block w-full border-line-strong border-b border-l"
          data-testid="histogram-map"
          height={HEIGHT}
          preserveAspectRatio="none"
          role="img"
          shapeRendering="crispEdges"
          viewBox={`0 0 ${columns.length} ${ROWS}`}
        >
          {paths.map((path, level) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a level is its place
            <path d={path} key={level} style={{ fill: `var(--seq-${level + 1})` }} />
          ))}
          <rect
            fill="none"
            height={ROWS}
            stroke="var(--accent)"
            strokeWidth="2"
            vectorEffect="non-scaling-stroke"
            width="1"
            x={chosen}
            y="0"
          />
        </svg>
        <span />
        <div className="flex justify-between pt-0.5 text-2xs text-muted">
          <span>step {formatInteger(found.steps[0] ?? 0)}</span>
          {thinned && (
            <span>
              {formatInteger(found.steps.length)} of {formatInteger(found.values)} drawn
            </span>
          )}
          <span>{columns.length > 1 && `step ${formatInteger(found.steps.at(-1) ?? 0)}`}</span>
        </div>
      </div>
    </figure>
  );
}

function pathOf(columns: readonly number[][], most: number, level: number): string {
  return columns
    .flatMap((column, x) =>
      column.map((share, row) => (levelOf(share, most) === level ? `M${x} ${ROWS - row - 1}h1v1h-1z` : "")),
    )
    .join("");
}

/** One histogram as bars, and its figures. */
export function HistogramBars({ histogram }: { histogram: HistogramValue }) {
  const { counts, min, max, count, nan_count, inf_count } = histogram;
  const most = Math.max(1, ...counts);
  const odd = [
    nan_count > 0 && `${formatInteger(nan_count)} NaN`,
    inf_count > 0 && `${formatInteger(inf_count)} infinite`,
  ].filter(Boolean);
  return (
    <div className="min-w-0">
      <svg
        aria-label={`${formatInteger(count)} values from ${formatNumber(min)} to ${formatNumber(max)}`}
        className="block w-full border-line-strong border-b"
        height="96"
        preserveAspectRatio="none"
        role="img"
        viewBox={`0 0 ${Math.max(1, counts.length)} 100`}
      >
        {counts.map((each, bin) => (
          <rect
            fill="var(--seq-3)"
            height={each > 0 ? Math.max(1, (each / most) * 96) : 0}
            // biome-ignore lint/suspicious/noArrayIndexKey: a bin is its place
            key={bin}
            width="0.9"
            x={bin}
            y={100 - (each > 0 ? Math.max(1, (each / most) * 96) : 0)}
          />
        ))}
      </svg>
      <div className="flex justify-between pt-0.5 text-2xs text-muted">
        <span>{formatNumber(min)}</span>
        <span>{formatNumber(max)}</span>
      </div>
      <p className="text-muted text-xs">
        {formatInteger(count)} values
        {odd.length > 0 && <span className="text-warn"> · {odd.join(", ")}</span>}
      </p>
    </div>
  );
}
