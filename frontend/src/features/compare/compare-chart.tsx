import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo } from "react";
import { type Line, MOST_BANDS } from "@/components/charts/drawing";
import { extentOf } from "@/components/charts/scale";
import { yRange } from "@/components/charts/uplot-options";
import { MetricFigure } from "@/components/metrics/chart-cell";
import { actionsOf } from "@/components/metrics/chart-view";
import { type DomainStore, domainWithin, useEnds } from "@/components/metrics/domain";
import { bucketCaption, titleOf } from "@/components/metrics/series";
import { formatOf, roundRange, ticksOf, type XAxis, xNameOf } from "@/components/metrics/x-axis";
import { ErrorState, Skeleton } from "@/components/ui/view-states";
import { count } from "@/lib/format";
import { curvesAsked } from "./asked";
import { type Compared, linesOf } from "./model";
import { type Curves, curvesQuery } from "./queries";
import type { CompareSearch } from "./search";

const route = getRouteApi("/compare");
const LIVE_MS = 3_000;
/** Charts of one run each, of one metric. */
const MOST_EACH = 24;

interface CompareChartProps {
  name: string;
  ids: readonly string[];
  compared: readonly Compared[];
  domain: DomainStore;
  width: number;
  live: boolean;
  change: (next: Partial<CompareSearch>) => void;
}

/** One metric of all runs, in one chart or one each. */
export function CompareChart(props: CompareChartProps) {
  const { name, ids, compared, domain, width, live } = props;
  const view = route.useSearch();
  const { x = "step", each } = view;
  const client = useQueryClient();
  const wanted = curvesAsked(view, ids, name, width);
  const asked = useQuery({
    ...curvesQuery(wanted),
    refetchInterval: live ? LIVE_MS : false,
  });
  const lines = useMemo(
    () => (asked.data ? linesOf(asked.data, compared, name) : []),
    [asked.data, compared, name],
  );
  useEffect(() => {
    for (const { columns } of lines) domain.cover([columns.x[0], columns.x.at(-1)]);
  }, [lines, domain]);
  if (!asked.data) {
    return asked.error ? (
      <ErrorState
        error={asked.error}
        onRetry={() => void asked.refetch()}
        what={`${titleOf(name)} could not be loaded`}
      />
    ) : (
      <Skeleton className="mt-2 w-40" />
    );
  }
  const drawn = lines.length > MOST_BANDS && !each ? "mean" : "min/mean/max";
  const caption = captionOf(asked.data, ids.length, { axis: x, drawn, stale: asked.error !== null });
  if (!each) {
    const askWhole = async () =>
      linesOf(await client.fetchQuery(curvesQuery({ ...wanted, banded: "all" })), compared, name);
    return (
      <Figure
        {...props}
        caption={caption}
        lines={lines}
        title={titleOf(name)}
        wholeLines={wanted.banded === "all" ? undefined : askWhole}
      />
    );
  }
  const [low, high] = extentOf(
    lines.flatMap(({ columns }) => [...columns.min, ...columns.max].filter(isNumber)),
  );
  const [floor, ceiling] = yRange(null, low, high);
  return (
    <>
      <h3 className="font-strong">{titleOf(name)}</h3>
      <div className="grid gap-x-6 gap-y-4 pt-2 sm:grid-cols-2 xl:grid-cols-3">
        {lines.slice(0, MOST_EACH).map((line) => (
          <Figure
            {...props}
            caption={caption}
            key={line.id}
            limits={{ low: floor, high: ceiling }}
            lines={[line]}
            title={`${titleOf(name)}, ${line.label}`}
          />
        ))}
      </div>
      {lines.length > MOST_EACH && (
        <p className="pt-2 text-muted">
          The first {MOST_EACH} of {lines.length} runs have a chart; hide some to see others.
        </p>
      )}
    </>
  );
}

interface FigureProps extends CompareChartProps {
  title: string;
  caption: string;
  lines: readonly Line[];
  wholeLines?: (() => Promise<readonly Line[]>) | undefined;
  limits?: { low: number; high: number };
}

function Figure({ name, title, lines, wholeLines, caption, limits, domain, change }: FigureProps) {
  const view = route.useSearch();
  const { x = "step" } = view;
  const ends = useEnds(domain);
  const shown = useMemo(() => domainWithin(ends, view.from, view.to), [ends, view.from, view.to]);
  const formatX = useMemo(() => formatOf(x, 0, shown), [x, shown]);
  const ticksX = useMemo(() => ticksOf(x, 0), [x]);
  const actions = actionsOf(view, change, [name]);
  return (
    <MetricFigure
      actions={{ ...actions, onPin: undefined, limits: { ...limits, ...actions.limits } }}
      caption={caption}
      domain={shown}
      formatX={formatX}
      ticksX={ticksX}
      group="compare"
      lines={lines}
      markers={NONE}
      onPick={(at) => change({ at: at === view.at ? undefined : at })}
      onRange={(from, to) => change(roundRange(x, from, to))}
      onReset={() => change({ from: undefined, to: undefined })}
      picked={view.at ?? null}
      since={false}
      smooth={view.smooth ?? 0}
      title={title}
      unit=""
      wholeLines={wholeLines}
      xName={xNameOf(x)}
    />
  );
}

const NONE: never[] = [];

interface Captioned {
  axis: XAxis;
  drawn: "min/mean/max" | "mean";
  /** It could not be renewed. */
  stale: boolean;
}

function captionOf({ curves, width }: Curves, runs: number, { axis, drawn, stale }: Captioned): string {
  const counts = curves.flatMap(({ points }) => points.count);
  const told = [
    stale && "could not be renewed",
    bucketCaption({ bucketWidth: width, count: counts }, axis, drawn),
    curves.length < runs && `${count(runs - curves.length, "run")} did not log it`,
  ];
  return told.filter(Boolean).join(" · ");
}

const isNumber = (value: number | null): value is number => value !== null;
