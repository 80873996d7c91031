import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { type ReactNode, useEffect, useEffectEvent, useId, useMemo } from "react";
import { ChartCell } from "@/components/metrics/chart-cell";
import { inOrder, titleOf } from "@/components/metrics/series";
import { formatSpecs, groupOf, parseSpecs, type Spec, sameSpec } from "@/components/metrics/view";
import { Button } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { ErrorState, Skeleton } from "@/components/ui/view-states";
import { classNames } from "@/lib/class-names";
import { count, formatInteger } from "@/lib/format";
import { metricNamesQuery } from "../queries";
import { MetricChart, type MetricChartProps } from "./metric-chart";

const route = getRouteApi("/runs/$runId/metrics");

export type Shared = Omit<MetricChartProps, "spec">;

interface GroupProps {
  /** `train` of `train/loss`; empty for names without one. */
  group: string;
  names: number;
  open: boolean;
  onToggle: () => void;
  shared: Shared;
}

/** The metrics of one prefix, which fold away. */
export function MetricGroup({ group, names, open, onToggle, shared }: GroupProps) {
  const { wide } = route.useSearch();
  const enlarged = parseSpecs(wide).some((spec) => spec.length === 1 && groupOf(spec[0] ?? "") === group);
  const title = group === "sys" ? "Speed" : group || "Metrics";
  return (
    <Fold
      note={group === "sys" ? "measured by the engine" : `${formatInteger(names)} logged by the program`}
      onToggle={onToggle}
      open={open}
      title={title}
      wide={enlarged ? 3 : columnsOf(names)}
    >
      <Names group={group} least={names} shared={shared} />
    </Fold>
  );
}

/** As many columns as charts, at most all three. */
export function columnsOf(charts: number): 1 | 2 | 3 {
  return charts > 2 ? 3 : charts === 2 ? 2 : 1;
}

interface FoldProps {
  title: string;
  note: string;
  open: boolean;
  onToggle: (() => void) | undefined;
  /** Columns that its charts take: small groups stand beside each other. */
  wide: 1 | 2 | 3;
  children: ReactNode;
}

const COLUMNS = { 1: "", 2: "md:col-span-2", 3: "md:col-span-2 xl:col-span-3" };

export function Fold({ title, note, open, onToggle, wide, children }: FoldProps) {
  const id = useId();
  return (
    <section
      aria-labelledby={id}
      className={classNames("min-w-0", COLUMNS[open ? wide : 3])}
      data-group={title}
    >
      <div className="section-rule">
        <h2 id={id}>
          {onToggle ? (
            <button
              aria-expanded={open}
              className="inline-flex items-center gap-1.5"
              onClick={onToggle}
              type="button"
            >
              <Icon className="text-muted" name={open ? "down" : "right"} size={12} />
              {title}
            </button>
          ) : (
            title
          )}
        </h2>
        <span className="min-w-0 truncate text-muted">{note}</span>
      </div>
      {open && children}
    </section>
  );
}

interface NamesProps {
  group: string;
  /** As many as were counted: a list that was asked for before lacks those that came since. */
  least: number;
  shared: Shared;
}

function Names({ group, least, shared }: NamesProps) {
  const { runId } = route.useParams();
  const { q } = route.useSearch();
  const found = useInfiniteQuery(metricNamesQuery(runId, q, group));
  const names = useMemo(() => inOrder(found.data?.pages.flatMap(({ items }) => items) ?? []), [found.data]);
  const lacks = found.data !== undefined && !found.hasNextPage && names.length < least;
  const renew = useEffectEvent(() => {
    if (lacks) void found.refetch();
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: once for each count, whatever the answer is
  useEffect(() => renew(), [least, found.data === undefined]);
  const specs = useMemo(() => names.map(({ name }): Spec => [name]), [names]);
  if (!found.data) {
    if (found.error)
      return (
        <ErrorState
          error={found.error}
          onRetry={() => void found.refetch()}
          what="The names of the metrics could not be loaded"
        />
      );
    return <Skeleton className="mt-3 w-60" />;
  }
  const rest = found.hasNextPage;
  return (
    <>
      <Grid shared={shared} specs={specs} />
      {rest && (
        <Button
          className="mt-4"
          compact
          disabled={found.isFetchingNextPage}
          onClick={() => void found.fetchNextPage()}
        >
          {found.isFetchingNextPage ? "Loading" : `Show more than ${count(names.length, "metric")}`}
        </Button>
      )}
    </>
  );
}

export function Grid({ specs, shared }: { specs: readonly Spec[]; shared: Shared }) {
  const view = route.useSearch();
  const wide = parseSpecs(view.wide);
  const columns =
    specs.length > 2 ? "md:grid-cols-2 xl:grid-cols-3" : specs.length > 1 ? "md:grid-cols-2" : "";
  return (
    <div className={classNames("grid gap-x-8 gap-y-6 pt-3", columns)}>
      {specs.map((spec) => (
        <ChartCell
          key={formatSpecs([spec])}
          name={spec.map(titleOf).join(", ")}
          wide={wide.some((one) => sameSpec(one, spec))}
        >
          {() => <MetricChart {...shared} spec={spec} />}
        </ChartCell>
      ))}
    </div>
  );
}
