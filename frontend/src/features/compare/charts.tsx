import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useDeferredValue, useState } from "react";
import { ChartCell } from "@/components/metrics/chart-cell";
import { ChartMenus } from "@/components/metrics/chart-menu";
import { domainWithin, useDomainStore, useEnds } from "@/components/metrics/domain";
import { NameDialog } from "@/components/metrics/name-dialog";
import { titleOf } from "@/components/metrics/series";
import { formatSpecs, parseSpecs, sameSpec } from "@/components/metrics/view";
import { PickedPlace, ViewControls } from "@/components/metrics/view-controls";
import { formatOf } from "@/components/metrics/x-axis";
import { Button } from "@/components/ui/button";
import { Section } from "@/components/ui/section";
import { Segmented } from "@/components/ui/segmented";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { count } from "@/lib/format";
import { usePageWidth } from "@/lib/page-width";
import { shownNames } from "./asked";
import { CompareChart } from "./compare-chart";
import type { Compared } from "./model";
import { firstNamesQuery, sharedNamesQuery } from "./queries";
import type { CompareSearch } from "./search";
import { StepReductions } from "./step-reductions";

const route = getRouteApi("/compare");
const MOST = 24;
/** A place of many runs leads to so many of their reductions. */
const MOST_LINKS = 8;

interface ChartsProps {
  ids: readonly string[];
  compared: readonly Compared[];
  /** Whether any run has not ended. */
  live: boolean;
  change: (next: Partial<CompareSearch>) => void;
}

export function Charts({ ids, compared, live, change }: ChartsProps) {
  const view = route.useSearch();
  const { x = "step", from, to, each } = view;
  const width = usePageWidth();
  const names = useInfiniteQuery(firstNamesQuery(ids));
  const shown = shownNames(view, names.data?.pages.flatMap(({ items }) => items) ?? []);
  const store = useDomainStore(`${x} ${ids.join()}`, null);
  const domain = domainWithin(useEnds(store), from, to);
  const formatX = formatOf(x, 0, domain);
  const wide = parseSpecs(view.wide);
  return (
    <Section
      aside={
        <>
          <Segmented
            choices={[
              { value: "over", label: "Overlaid" },
              { value: "each", label: "One each" },
            ]}
            label=""
            onChange={(value) => change({ each: value === "each" ? true : undefined })}
            value={each ? "each" : "over"}
          />
          <ChooseMetrics change={change} ids={ids} names={shown} />
        </>
      }
      title="Metrics"
    >
      <div className="flex flex-wrap items-center gap-x-6 gap-y-2 py-3">
        <ViewControls change={change} formatX={formatX} view={view} />
      </div>
      {view.at !== undefined && (
        <PickedPlace
          at={view.at}
          axis={x}
          formatX={formatX}
          onClose={() => change({ at: undefined })}
          runs={compared.filter(({ drawn }) => drawn).slice(0, MOST_LINKS)}
        />
      )}
      {names.error && <ErrorState error={names.error} what="The metrics could not be loaded" />}
      {names.isPending && <SkeletonRows label="the metrics" rows={6} />}
      {names.data && shown.length === 0 && (
        <p className="pt-2 text-muted">None of the runs logged a metric.</p>
      )}
      <div className="grid gap-x-8 gap-y-6 md:grid-cols-2">
        {shown.map((name) => (
          <ChartCell
            key={name}
            name={titleOf(name)}
            wide={each === true || wide.some((spec) => sameSpec(spec, [name]))}
          >
            {() => (
              <CompareChart
                change={change}
                compared={compared}
                domain={store}
                ids={ids}
                live={live}
                name={name}
                width={width}
              />
            )}
          </ChartCell>
        ))}
      </div>
      <ChartMenus />
      {view.at !== undefined && x === "step" && (
        <StepReductions
          compared={compared.filter(({ drawn }) => drawn).slice(0, MOST_LINKS)}
          step={view.at}
        />
      )}
    </Section>
  );
}

function ChooseMetrics({ ids, names, change }: Pick<ChartsProps, "ids" | "change"> & { names: string[] }) {
  const [open, setOpen] = useState(false);
  const [text, setText] = useState("");
  const search = useDeferredValue(text.trim());
  const found = useInfiniteQuery({ ...sharedNamesQuery(ids, search || undefined, 50), enabled: open });
  return (
    <>
      <Button compact onClick={() => setOpen(true)}>
        Metrics…
      </Button>
      {open && (
        <NameDialog
          action={(some) => `Draw ${count(some, "metric")}`}
          found={{
            names: found.data?.pages.flatMap(({ items }) => items.map(({ name }) => name)) ?? [],
            error: found.error,
            pending: found.isPending,
            more: found.hasNextPage ? () => void found.fetchNextPage() : undefined,
          }}
          least={1}
          most={MOST}
          names={names}
          onChoose={(next) => change({ metrics: formatSpecs(next.map((name) => [name])) })}
          onClose={() => setOpen(false)}
          onSearch={setText}
          search={text}
          title="Metrics to compare"
        />
      )}
    </>
  );
}
