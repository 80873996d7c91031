interface SingleValueProps {
  title: string;
  unit: string;
  x: number;
  /** null where the one value is NaN or infinite. */
  value: number | null;
  /** What it is then. */
  odd: string | null;
  xName: string;
  formatX: (value: number) => string;
  formatY: (value: number) => string;
}

/** A metric that was logged once: a number with its step. One point has no scale to draw. */
export function SingleValue({ title, unit, x, value, odd, xName, formatX, formatY }: SingleValueProps) {
  return (
    <figure data-points={1} data-testid={`chart-${title}`}>
      <figcaption className="flex items-baseline gap-2">
        <span className="truncate font-strong" title={title}>
          {title}
        </span>
        {unit && <span className="text-muted text-xs">{unit}</span>}
      </figcaption>
      <p className="mt-3 border-line border-t pt-3 text-xl tracking-[-0.01em]">
        {value === null ? <span className="text-warn">{odd ?? "not finite"}</span> : formatY(value)}
      </p>
      <p className="mt-0.5 text-2xs text-muted">
        logged once, {xName} {formatX(x)}
      </p>
    </figure>
  );
}
