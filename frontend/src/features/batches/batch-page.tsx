import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { keys } from "@/api/queries";
import type { Outcomes } from "@/components/outcomes/best";
import { ParallelPlot } from "@/components/outcomes/parallel-plot";
import { ScatterPlot } from "@/components/outcomes/scatter-plot";
import { buttonClass } from "@/components/ui/button";
import { Section } from "@/components/ui/section";
import { Segmented } from "@/components/ui/segmented";
import { Select } from "@/components/ui/select";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { count, formatInteger, shortId } from "@/lib/format";
import { useLiveList } from "@/lib/live";
import { CancelBatch } from "./cancel-batch";
import { OutcomeTable } from "./outcome-table";
import { batchQuery, outcomesQuery } from "./queries";
import { BatchStates } from "./states";

const route = getRouteApi("/batches/$batchId");

/** Which parameters are best, and how does the outcome depend on them? */
export function BatchPage() {
  useLiveList("runs", [keys.batches]);
  const { batchId } = route.useParams();
  const { sort = "index" } = route.useSearch();
  const batch = useQuery(batchQuery(batchId));
  const outcomes = useQuery({ ...outcomesQuery(batchId, sort), placeholderData: (old) => old });
  const error = batch.error ?? outcomes.error;
  if (!batch.data || !outcomes.data) {
    return (
      <div className="px-4 py-5 lg:px-6">
        <h1 className="sr-only">Sweep</h1>
        {error ? (
          <ErrorState error={error} what="The sweep could not be loaded">
            <Link className="link" to="/batches">
              All sweeps
            </Link>
          </ErrorState>
        ) : (
          <SkeletonRows label="the sweep" />
        )}
      </div>
    );
  }
  const csv = `/api/v1/batches/${batchId}/outcomes.csv?sort=${encodeURIComponent(sort)}`;
  return (
    <div className="space-y-7 px-4 py-5 lg:px-6">
      {error && <StaleBanner error={error} since={batch.dataUpdatedAt} />}
      <header className="flex flex-wrap items-start gap-x-4 gap-y-2">
        <div className="min-w-0 flex-1 basis-60">
          <h1 className="flex flex-wrap items-baseline gap-x-3 text-lg">
            <span className="truncate">{batch.data.name || batch.data.jobs.join(", ")}</span>
            <code className="font-normal text-muted text-sm" title={batch.data.id}>
              {shortId(batch.data.id)}
            </code>
          </h1>
          <p className="mt-1">
            <BatchStates batch={batch.data} />
          </p>
          {!batch.data.complete && (
            <p className="mt-1 text-warn" role="status">
              {batch.data.hint}
            </p>
          )}
        </div>
        <Link className={buttonClass("plain", true)} search={{ batch: batchId }} to="/compare">
          Compare runs
        </Link>
        <a className={buttonClass("plain", true)} download href={csv}>
          CSV
        </a>
        <CancelBatch batch={batch.data} />
      </header>
      <Picture outcomes={outcomes.data} />
      <Section
        aside={
          <Link className="link text-xs" search={{ q: `batch:${batchId}` }} to="/runs">
            Open in Runs
          </Link>
        }
        note={shownOf(outcomes.data)}
        title="Outcomes"
      >
        <OutcomeTable outcomes={outcomes.data} sort={sort} />
      </Section>
    </div>
  );
}

/** How many runs there are, and how many of them the page has. */
function shownOf({ items, total }: Outcomes): string {
  const all = count(total, "run");
  return items.length < total
    ? `the first ${formatInteger(items.length)} of ${all} in this order; CSV has all`
    : all;
}

function Picture({ outcomes }: { outcomes: Outcomes }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const metric = outcomes.metrics.find(({ name }) => name === search.metric) ?? outcomes.metrics[0];
  if (!metric || outcomes.parameters.length === 0) {
    return (
      <Section title="Outcome by parameter">
        <p className="pt-3 text-muted">
          {outcomes.parameters.length === 0
            ? "All runs have the same parameters."
            : 'It is drawn once a run has returned a number, such as {"accuracy": 0.97}.'}
        </p>
      </Section>
    );
  }
  const picture = search.picture ?? (outcomes.parameters.length > 1 ? "lines" : "points");
  const x = outcomes.parameters.find((name) => name === search.x) ?? outcomes.parameters[0] ?? "";
  const choose = (part: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...part }), replace: true });
  return (
    <Section
      aside={
        <>
          {picture === "points" && outcomes.parameters.length > 1 && (
            <Select
              choices={outcomes.parameters.map((name) => ({ value: name, label: name }))}
              compact
              label="Parameter"
              onChange={(name) => choose({ x: name })}
              value={x}
            />
          )}
          <Select
            choices={outcomes.metrics.map(({ name, better }) => ({
              value: name,
              label: name,
              note: `${better} is better`,
            }))}
            compact
            label="Outcome"
            onChange={(name) => choose({ metric: name })}
            value={metric.name}
          />
          <Segmented
            choices={[
              { value: "lines", label: "Lines" },
              { value: "points", label: "Points" },
            ]}
            label=""
            onChange={(value) => choose({ picture: value })}
            value={picture}
          />
        </>
      }
      note={
        outcomes.items.length < outcomes.total && `of the ${formatInteger(outcomes.items.length)} runs below`
      }
      title="Outcome by parameter"
    >
      {picture === "lines" ? (
        <ParallelPlot metric={metric} outcomes={outcomes} />
      ) : (
        <ScatterPlot metric={metric} outcomes={outcomes} parameter={x} />
      )}
    </Section>
  );
}
