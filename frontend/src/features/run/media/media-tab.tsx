import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import type { MediaSeries } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { Section } from "@/components/ui/section";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { formatInteger } from "@/lib/format";
import { AttemptSelect } from "../attempt-select";
import { GapNote } from "../gap-note";
import { runEndedQuery } from "../queries";
import { Artifacts } from "./artifacts";
import { mediaQuery } from "./queries";
import { Value } from "./value";

const route = getRouteApi("/runs/$runId/media");

const KINDS = [
  { kind: "image", title: "Images", className: "grid gap-6 pt-3 sm:grid-cols-2 lg:grid-cols-3" },
  { kind: "histogram", title: "Histograms", className: "space-y-8 pt-3" },
  { kind: "table", title: "Tables", className: "space-y-8 pt-3" },
  { kind: "text", title: "Texts", className: "space-y-6 pt-3" },
] as const;

/** What did it log beside numbers, how did that change, and which files does it keep? */
export function MediaTab() {
  const { runId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const media = useInfiniteQuery(mediaQuery(runId, search.attempt));
  const ended = useQuery(runEndedQuery(runId)).data;
  if (!media.data) {
    return media.error ? (
      <ErrorState
        error={media.error}
        onRetry={() => void media.refetch()}
        what="What was logged could not be loaded"
      />
    ) : (
      <SkeletonRows label="what was logged" rows={6} />
    );
  }
  const change = (next: Partial<typeof search>) =>
    void navigate({ search: (old) => ({ ...old, ...next }), replace: true, resetScroll: false });
  const all = media.data.pages.flatMap(({ items }) => items);
  return (
    <>
      <GapNote runId={runId} what="media" />
      {media.error && <StaleBanner error={media.error} since={media.dataUpdatedAt} />}
      <AttemptSelect
        attempt={search.attempt}
        className="mb-5"
        onChoose={(attempt) => change({ attempt, step: undefined })}
        runId={runId}
      />
      {all.length === 0 ? (
        <NoMedia ended={ended} />
      ) : (
        <>
          <StepSlider
            all={all}
            live={ended === false}
            onStep={(step) => change({ step })}
            step={search.step}
          />
          <Kinds
            all={all}
            attempt={search.attempt}
            onStep={(step) => change({ step })}
            runId={runId}
            step={search.step}
          />
        </>
      )}
      {media.hasNextPage && (
        <Button className="mt-6" disabled={media.isFetching} onClick={() => void media.fetchNextPage()}>
          {media.isFetchingNextPage ? "Loading more names" : "Show more names"}
        </Button>
      )}
      <div className="mt-8">
        <Artifacts attempt={search.attempt} runId={runId} />
      </div>
    </>
  );
}

interface KindsProps {
  all: readonly MediaSeries[];
  runId: string;
  attempt: string | undefined;
  step: number | undefined;
  onStep: (step: number) => void;
}

function Kinds({ all, runId, attempt, step, onStep }: KindsProps) {
  return (
    <div className="space-y-10">
      {KINDS.map(({ kind, title, className }) => {
        const some = all.filter((series) => series.kind === kind);
        if (some.length === 0) return null;
        return (
          <Section key={kind} note={formatInteger(some.length)} title={title}>
            <div className={className}>
              {some.map((series) => (
                <Value
                  attempt={attempt}
                  key={series.name}
                  onStep={onStep}
                  runId={runId}
                  series={series}
                  step={step}
                />
              ))}
            </div>
          </Section>
        );
      })}
    </div>
  );
}

interface StepSliderProps {
  all: readonly MediaSeries[];
  step: number | undefined;
  live: boolean;
  onStep: (step: number | undefined) => void;
}

/** Moves all that is shown to a step; without one the newest is followed. */
function StepSlider({ all, step, live, onStep }: StepSliderProps) {
  const first = Math.min(...all.map(({ first_step }) => first_step));
  const last = Math.max(...all.map(({ last_step }) => last_step));
  const shown = Math.min(Math.max(step ?? last, first), last);
  return (
    <div className="mb-8 flex items-center gap-3" data-testid="media-steps">
      <span className="w-24 shrink-0">
        <span className="text-muted">step</span> <strong>{formatInteger(shown)}</strong>
      </span>
      <span className="text-2xs text-muted max-sm:hidden">{formatInteger(first)}</span>
      <input
        aria-label="Step"
        aria-valuetext={`step ${shown}`}
        className="h-7 min-w-0 flex-1 cursor-pointer accent-accent"
        disabled={first === last}
        max={last}
        min={first}
        onChange={(event) => onStep(Number(event.target.value))}
        type="range"
        value={shown}
      />
      <span className="text-2xs text-muted max-sm:hidden">{formatInteger(last)}</span>
      <button
        aria-pressed={step === undefined}
        className="h-7 shrink-0 rounded-control border border-line-strong px-2.5 text-xs hover:bg-hover aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent"
        onClick={() => onStep(step === undefined ? shown : undefined)}
        type="button"
      >
        {live ? "Follow latest" : "Latest"}
      </button>
    </div>
  );
}

function NoMedia({ ended }: { ended: boolean | undefined }) {
  return (
    <EmptyState
      snippet={
        "from drumline import Histogram, Image, Table, Text\n\nrun.log(step=step, weights=Histogram(w), sample=Image(pixels))"
      }
      title={ended ? "This run logged nothing beside numbers." : "Nothing beside numbers logged yet."}
    >
      Histograms, images, tables and texts of the program are shown here, step by step.
    </EmptyState>
  );
}
