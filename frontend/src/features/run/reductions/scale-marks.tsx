import { type Scale, tickTexts } from "@/components/charts/scale";
import { classNames } from "@/lib/class-names";
import { formatNumber } from "@/lib/format";
import { hatchOf, REPLICA_COLORS } from "@/lib/replica-colors";
import { awayText, outlierBy } from "./outliers";
import type { ReductionView, ReplicaInput } from "./view-model";

const percent = (share: number) => `${share * 100}%`;

/** The result and, where it is another number, the mean of means: vertical lines through every row. */
export function ScaleMarks({ view }: { view: ReductionView }) {
  const { scale, scalar, naive, spread, reduction } = view;
  if (!scale) return null;
  const band =
    spread && spread.mad > 0 ? { from: spread.median - spread.mad, to: spread.median + spread.mad } : null;
  const onScale = reduction.op === "mean" && scalar !== null && Number.isFinite(scalar);
  return (
    <span aria-hidden="true">
      {band && (
        <span
          className="absolute -inset-y-px bg-surface"
          style={{
            left: percent(Math.max(0, scale.at(band.from))),
            right: percent(Math.max(0, 1 - scale.at(band.to))),
          }}
        />
      )}
      {view.ragged && naive !== null && Number.isFinite(naive) && (
        <span
          className="absolute -inset-y-px border-bad border-l border-dashed"
          style={{ left: percent(scale.at(naive)) }}
        />
      )}
      {onScale && (
        <span
          className="absolute -inset-y-px border-accent border-l-2"
          style={{ left: percent(scale.at(scalar)) }}
        />
      )}
    </span>
  );
}

/** A replica's own number on the scale; values that are not finite stand in a lane at the right edge, named. */
export function Dot({ input, scale, view }: { input: ReplicaInput; scale: Scale; view: ReductionView }) {
  const { own, replica } = input;
  if (own === null) return null;
  if (!Number.isFinite(own)) {
    const empty = Number.isNaN(own) && input.count === 0;
    return (
      <span
        className={classNames(
          "absolute inset-y-0 right-1 flex items-center text-xs",
          empty ? "text-muted" : "text-bad",
        )}
      >
        {empty ? "contributes nothing" : formatNumber(own)}
      </span>
    );
  }
  const outlier = outlierBy(view, replica, "value");
  const place = scale.at(own);
  return (
    <>
      <svg
        aria-label={`replica ${replica}: ${formatNumber(own, 6)}`}
        className="absolute top-1/2 size-3 -translate-x-1/2 -translate-y-1/2 overflow-visible"
        role="img"
        style={{ left: percent(place) }}
        viewBox="0 0 12 12"
      >
        <title>{`replica ${replica}: ${own}`}</title>
        <circle
          cx="6"
          cy="6"
          fill={`var(${REPLICA_COLORS[replica % REPLICA_COLORS.length]})`}
          r="5"
          stroke="var(--bg)"
          strokeWidth="1.5"
        />
        {hatchOf(replica) > 0 && <circle cx="6" cy="6" fill="var(--bg)" r="1.6" />}
      </svg>
      {outlier && (
        <span
          className="absolute inset-y-0 flex items-center whitespace-nowrap px-2.5 text-2xs text-warn"
          style={place > 0.6 ? { right: percent(1 - place) } : { left: percent(place) }}
        >
          {awayText(outlier)}
        </span>
      )}
    </>
  );
}

/** The scale's numbers. */
export function ScaleAxis({ scale }: { scale: Scale }) {
  const texts = tickTexts(scale.ticks);
  return (
    <div className="relative h-5 text-2xs text-muted">
      {scale.ticks.map((tick, i) => (
        <span
          className="absolute top-0 -translate-x-1/2"
          key={tick}
          style={{ left: percent(scale.at(tick)) }}
        >
          <span className="mx-auto block h-1 w-px bg-line-strong" />
          {texts[i]}
        </span>
      ))}
    </div>
  );
}

/** The names of the lines. */
export function ScaleLegend({ view, className }: { view: ReductionView; className?: string }) {
  const { scalar, naive, ragged, reduction } = view;
  const shown = reduction.op === "mean" && scalar !== null && Number.isFinite(scalar);
  return (
    <div
      className={classNames(
        "flex flex-wrap justify-end gap-x-3 gap-y-0.5 whitespace-nowrap text-2xs text-muted",
        className,
      )}
    >
      {shown && (
        <span className="flex items-center gap-1.5">
          <span className="h-3 border-accent border-l-2" /> result
        </span>
      )}
      {ragged && naive !== null && Number.isFinite(naive) && (
        <span className="flex items-center gap-1.5">
          <span className="h-3 border-bad border-l border-dashed" /> mean of means
        </span>
      )}
      {view.spread && view.spread.mad > 0 && (
        <span className="flex items-center gap-1.5">
          <span className="h-3 w-3 border border-line bg-surface" /> median ± MAD
        </span>
      )}
    </div>
  );
}
