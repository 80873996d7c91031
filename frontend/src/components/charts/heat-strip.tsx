import { formatNumber } from "@/lib/format";

/** Buckets of an array: each keeps its extremes, and how many of its elements are not finite. */
export interface HeatBucket {
  min: number | null;
  max: number | null;
  notFinite: number;
}

/** Colours from `low` over `middle` to `high`; shared by all strips that are compared. */
export interface HeatScale {
  low: number;
  middle: number;
  high: number;
}

/** The scale over all values: around zero where they lie on both sides of it. */
export function heatScale(values: readonly number[]): HeatScale | null {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return null;
  const low = finite.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY);
  const high = finite.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
  return { low, middle: low < 0 && high > 0 ? 0 : low / 2 + high / 2, high };
}

interface HeatStripProps {
  buckets: readonly HeatBucket[];
  scale: HeatScale;
  height?: number;
  label: string;
}

/** An array as a strip: the upper half of a bucket is its largest value, the lower its smallest. */
export function HeatStrip({ buckets, scale, height = 16, label }: HeatStripProps) {
  const half = height / 2;
  return (
    <svg
      aria-label={label}
      className="block w-full"
      height={height}
      preserveAspectRatio="none"
      role="img"
      shapeRendering="crispEdges"
      viewBox={`0 0 ${buckets.length} ${height}`}
    >
      {buckets.map((bucket, x) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a bucket is its place
        <g key={x}>
          <rect height={half} width="1" x={x} y="0" style={{ fill: heatColor(bucket.max, scale) }} />
          <rect height={half} width="1" x={x} y={half} style={{ fill: heatColor(bucket.min, scale) }} />
          {bucket.notFinite > 0 && <rect fill="var(--bad)" height="4" width="1" x={x} y={half - 2} />}
        </g>
      ))}
    </svg>
  );
}

/** What the colours mean: three values under a ramp. */
export function HeatLegend({ scale }: { scale: HeatScale }) {
  return (
    <div className="mt-3 w-40 max-w-full text-2xs text-muted">
      <div className="h-1.5 bg-[linear-gradient(to_right_in_oklab,var(--div-low),var(--div-mid),var(--div-high))]" />
      <div className="mt-0.5 flex justify-between">
        <span>{formatNumber(scale.low, 3)}</span>
        <span>{formatNumber(scale.middle, 3)}</span>
        <span>{formatNumber(scale.high, 3)}</span>
      </div>
    </div>
  );
}

/** A mix of the diverging tokens; the theme changes it without a redraw. */
function heatColor(value: number | null, { low, middle, high }: HeatScale): string {
  if (value === null) return "var(--line)";
  const [end, span] = value < middle ? ["--div-low", middle - low] : ["--div-high", high - middle];
  const share = span > 0 ? Math.min(1, Math.abs(value - middle) / span) : 0;
  return `color-mix(in oklab, var(${end}) ${Math.round(share * 100)}%, var(--div-mid))`;
}
