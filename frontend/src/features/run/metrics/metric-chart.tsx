import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { memo, useEffect, useMemo, useState } from "react";
import type { Line } from "@/components/charts/drawing";
import type { Marker } from "@/components/charts/markers";
import { SingleValue } from "@/components/charts/single-value";
import { MetricFigure } from "@/components/metrics/chart-cell";
import { actionsOf, overlaid } from "@/components/metrics/chart-view";
import { type DomainStore, domainWithin, useEnds } from "@/components/metrics/domain";
import { bucketCaption, type Curve, notFiniteMarkers, titleOf } from "@/components/metrics/series";
import type { Spec } from "@/components/metrics/view";
import { formatOf, roundRange, ticksOf, type XAxis, xNameOf } from "@/components/metrics/x-axis";
import { ErrorState, Skeleton } from "@/components/ui/view-states";
import { count, formatInteger, formatNumber } from "@/lib/format";
import { type CurveRange, curvesQuery } from "./curves";
import { OverlayDialog } from "./overlay-dialog";

const route = getRouteApi("/runs/$runId/metrics");

export interface MetricChartProps {
  spec: Spec;
  range: CurveRange;
  domain: DomainStore;
  markers: readonly Marker[];
  /** Learns where the axis of time has its zero. */
  onZero: (zero: number) => void;
}

/** One chart of the run's metrics: its curves are asked for when it is drawn. What the page around it learns renders none again. */
export const MetricChart = memo(({ spec, range, domain, markers, onZero }: MetricChartProps) => {
  const { runId } = route.useParams();
  const client = useQueryClient();
  const { data, error, isPending, refetch } = useQuery(curvesQuery(client, runId, spec, range));
  const zero = data?.[0]?.zero ?? null;
  const curves = useMemo(() => (data ?? []).flatMap(({ curve }) => curve ?? []), [data]);
  const several = spec.length > 1;
  const lines = useMemo(() => linesOf(curves, several), [curves, several]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: it is told of what was answered
  useEffect(() => {
    for (const { x } of curves) domain.cover([x[0], x.at(-1)]);
    if (zero !== null) onZero(zero);
  }, [curves, domain, zero]);
  if (lines.length === 0) {
    if (error)
      return (
        <ErrorState
          error={error}
          onRetry={() => void refetch()}
          what={`${spec.join(", ")} could not be loaded`}
        />
      );
    return isPending ? (
      <Skeleton className="mt-2 w-40" />
    ) : (
      <p className="text-muted">{spec.join(", ")}: nothing was logged.</p>
    );
  }
  return (
    <Figure
      axis={range.x}
      curves={curves}
      domain={domain}
      lines={lines}
      markers={markers}
      spec={spec}
      stale={error !== null}
      zero={zero}
    />
  );
});

interface FigureProps {
  spec: Spec;
  curves: readonly Curve[];
  lines: readonly Line[];
  axis: XAxis;
  domain: DomainStore;
  markers: readonly Marker[];
  zero: number | null;
  /** What is shown could not be renewed. */
  stale: boolean;
}

function Figure({ spec, curves, lines, axis, domain, markers, zero, stale }: FigureProps) {
  const view = route.useSearch();
  const navigate = route.useNavigate();
  const [overlaying, setOverlaying] = useState(false);
  const change = (next: typeof view) =>
    void navigate({ search: (old) => ({ ...old, ...next }), replace: true, resetScroll: false });
  const ends = useEnds(domain);
  const shown = useMemo(() => domainWithin(ends, view.from, view.to), [ends, view.from, view.to]);
  const [first] = curves;
  const all = useMemo(() => [...markers, ...curves.flatMap(notFiniteMarkers)], [markers, curves]);
  const formatX = useMemo(() => formatOf(axis, zero, shown), [axis, zero, shown]);
  const ticksX = useMemo(() => ticksOf(axis, zero), [axis, zero]);
  if (!first) return null;
  if (lines.length === 1 && first.n === 1 && first.x.length === 1)
    return <Single axis={axis} curve={first} />;
  return (
    <>
      <MetricFigure
        actions={{ ...actionsOf(view, change, spec), onOverlay: () => setOverlaying(true) }}
        caption={`${stale ? "could not be renewed · " : ""}${captionOf(curves, axis)}`}
        domain={shown}
        formatX={formatX}
        ticksX={ticksX}
        group="run"
        lines={lines}
        markers={all}
        onPick={(at) => change({ at: at === view.at ? undefined : at })}
        onRange={(from, to) => change(roundRange(axis, from, to))}
        onReset={() => change({ from: undefined, to: undefined })}
        picked={view.at ?? null}
        since={spec.every((name) => name.startsWith("sys/"))}
        smooth={view.smooth ?? 0}
        title={curves.map(({ title }) => title).join(", ")}
        unit={curves.every(({ unit }) => unit === first.unit) ? first.unit : ""}
        xName={xNameOf(axis)}
      />
      {overlaying && (
        <OverlayDialog
          names={spec}
          onChoose={(names) => change({ pin: overlaid(view, spec, names) })}
          onClose={() => setOverlaying(false)}
        />
      )}
    </>
  );
}

/** Logged once: a number with its place. One point has no scale to draw. */
function Single({ curve, axis }: { curve: Curve; axis: XAxis }) {
  return (
    <SingleValue
      formatX={formatOf(axis, null, [0, 0])}
      formatY={(value) => formatNumber(value)}
      odd={curve.odd[0] ?? null}
      title={curve.title}
      unit={curve.unit}
      value={curve.last[0] ?? null}
      x={curve.x[0] ?? 0}
      xName={xNameOf(axis)}
    />
  );
}

function linesOf(curves: readonly Curve[], several: boolean): Line[] {
  return curves.map((columns, nth) => ({
    id: columns.name,
    label: titleOf(columns.name),
    style: several ? nth : null,
    columns,
  }));
}

function captionOf(curves: readonly Curve[], axis: XAxis): string {
  const longest = curves.reduce((most, curve) => (curve.bucketWidth > most.bucketWidth ? curve : most));
  const holes = curves.reduce((sum, { notFinite }) => sum + notFinite.length, 0);
  const lost = curves.reduce((most, curve) => Math.max(most, curve.lost), 0);
  const told = [
    curves.every(({ x }) => x.length === 0) ? "no value in this range" : bucketCaption(longest, axis),
    holes > 0 && `${formatInteger(holes)} gaps where every value is NaN or infinite`,
    lost > 0 && `values lost at ${count(lost, "place")}`,
  ];
  return told.filter(Boolean).join(" · ");
}
