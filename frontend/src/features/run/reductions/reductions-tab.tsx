import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import type { ReductionName } from "@/api/schema";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { formatInteger } from "@/lib/format";
import { AttemptSelect } from "../attempt-select";
import { GapNote } from "../gap-note";
import { reductionNamesQuery, runEndedQuery } from "../queries";
import { Inspector } from "./inspector";
import { NameList } from "./name-list";
import { inOrder, nameKey, nearestStep } from "./names";
import { StepScrubber } from "./step-scrubber";

const route = getRouteApi("/runs/$runId/reductions");

/** What did each replica produce, how was it combined, is one an outlier? */
export function ReductionsTab() {
  const { runId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const names = useQuery(reductionNamesQuery(runId, search.attempt));
  const ended = useQuery(runEndedQuery(runId)).data;
  if (!names.data) {
    if (names.error) {
      return (
        <ErrorState
          error={names.error}
          onRetry={() => void names.refetch()}
          what="The reductions could not be loaded"
        />
      );
    }
    return <SkeletonRows label="the reductions" rows={8} />;
  }
  const change = (next: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...next }), replace: true, resetScroll: false });
  return (
    <>
      <GapNote runId={runId} what="reduction" />
      {names.error && <StaleBanner error={names.error} since={names.dataUpdatedAt} />}
      <AttemptSelect
        attempt={search.attempt}
        className="mb-5"
        onChoose={(attempt) => change({ attempt, step: undefined, nth: undefined })}
        runId={runId}
      />
      <Chosen change={change} ended={ended} names={names.data} runId={runId} search={search} />
    </>
  );
}

interface ChosenProps {
  runId: string;
  /** Whether the run has ended; undefined while that is not known. */
  ended: boolean | undefined;
  names: readonly ReductionName[];
  search: ReturnType<typeof route.useSearch>;
  change: (next: Partial<ChosenProps["search"]>) => void;
}

/** The names to choose from, and the one that is chosen. */
function Chosen({ runId, ended, names, search, change }: ChosenProps) {
  const ordered = inOrder(names);
  const wanted = ordered.filter(({ name }) => name === search.var);
  const chosen = wanted.find(({ origin }) => origin === search.origin) ?? wanted[0] ?? ordered[0];
  if (!chosen) return <NoReductions ended={ended} />;
  const near = search.step === undefined && search.near !== undefined ? search.near : null;
  const nearest = near === null ? undefined : nearestStep(chosen.steps, near);
  const step = search.step ?? nearest ?? chosen.steps.at(-1) ?? 0;
  return (
    <div className="grid gap-x-8 gap-y-6 lg:grid-cols-[200px_minmax(0,1fr)]">
      <NameList
        chosen={nameKey(chosen)}
        names={ordered}
        onChoose={({ name, origin }) => change({ var: name, origin, step: undefined, nth: undefined })}
      />
      <div className="flex min-w-0 flex-col gap-6">
        {near !== null && nearest != null && nearest !== near && (
          <p className="text-muted" role="status">
            Nothing is recorded of {chosen.name} at step {formatInteger(near)}: step {formatInteger(nearest)}{" "}
            is the nearest.
          </p>
        )}
        <StepScrubber
          following={search.step === undefined && near === null}
          live={ended === false}
          name={chosen}
          onFollow={(follow) => change({ step: follow ? undefined : step, near: undefined })}
          onStep={(next) => change({ step: next, near: undefined })}
          step={step}
        />
        <Inspector
          attempt={search.attempt}
          key={nameKey(chosen)}
          name={chosen}
          nth={search.nth ?? 1}
          onNth={(nth) => change({ nth: nth === 1 ? undefined : nth })}
          runId={runId}
          step={step}
        />
      </div>
    </div>
  );
}

function NoReductions({ ended }: { ended: boolean | undefined }) {
  return (
    <EmptyState
      snippet={'losses = strategy.run(step, args=batch)\nloss = strategy.reduce("mean", losses, axis=0)'}
      title={ended ? "This run recorded no reduction." : "No reduction recorded yet."}
    >
      Call strategy.reduce in the program; each call is recorded at every step that record.reductions_every
      names.
    </EmptyState>
  );
}
