import { type Scale, tickTexts } from "@/components/charts/scale";
import { histogram } from "./statistics";

const BINS = 40;
const HEIGHT = 120;

/** How the replicas' own numbers are distributed, with the result as a line. */
export function Histogram({
  values,
  scale,
  result,
}: {
  values: readonly number[];
  scale: Scale;
  result: number | null;
}) {
  const bins = histogram(values, BINS);
  const texts = tickTexts(scale.ticks);
  const most = Math.max(1, ...bins.map((bin) => bin.count));
  return (
    <figure>
      <svg
        aria-label={`Distribution of ${values.length} replicas`}
        className="block w-full border-line-strong border-b"
        height={HEIGHT}
        preserveAspectRatio="none"
        role="img"
        viewBox={`0 0 1000 ${HEIGHT}`}
      >
        {bins.map((bin) => {
          const left = scale.at(bin.from) * 1000;
          const width = Math.max(3, (scale.at(bin.to) - scale.at(bin.from)) * 1000 - 1);
          const height = (bin.count / most) * (HEIGHT - 8);
          return (
            <rect
              fill="var(--seq-3)"
              height={height}
              key={bin.from}
              width={width}
              x={left}
              y={HEIGHT - height}
            />
          );
        })}
        {result !== null && Number.isFinite(result) && (
          <path
            d={`M${scale.at(result) * 1000} 0V${HEIGHT}`}
            stroke="var(--accent)"
            strokeWidth="2"
            vectorEffect="non-scaling-stroke"
          />
        )}
      </svg>
      <div className="relative h-5 text-2xs text-muted">
        {scale.ticks.map((tick, i) => (
          <span
            className="absolute top-0.5 -translate-x-1/2"
            key={tick}
            style={{ left: `${scale.at(tick) * 100}%` }}
          >
            {texts[i]}
          </span>
        ))}
      </div>
    </figure>
  );
}
