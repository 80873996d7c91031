import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { MediaSeries, MediaValue } from "@/api/schema";
import { IconButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { ErrorState, Skeleton, StaleBanner } from "@/components/ui/view-states";
import { formatBytes, formatInteger, formatUtc } from "@/lib/format";
import { LoggedTable, LoggedText } from "./contents";
import { HistogramBars, HistogramMap } from "./histogram-map";
import { histogramsQuery, pngAddress, valueQuery } from "./queries";

interface ValueProps {
  runId: string;
  series: MediaSeries;
  attempt: string | undefined;
  /** Without a step the newest is shown. */
  step: number | undefined;
  /** Moves all that is shown to a step. */
  onStep: (step: number) => void;
}

/** One name: its value at the chosen step, or the newest before it. */
export function Value({ runId, series, attempt, step, onStep }: ValueProps) {
  const [nth, setNth] = useState(1);
  const value = useQuery(valueQuery(runId, { series, attempt }, { step, nth }));
  return (
    <article aria-label={series.name} className="min-w-0" data-testid="media">
      <header className="mb-2 flex min-w-0 flex-wrap items-center gap-x-3">
        <h3 className="wrap-anywhere font-mono text-xs">{series.name}</h3>
        {value.data && <Place onNth={setNth} onStep={onStep} value={value.data} />}
      </header>
      {value.error && value.data && <StaleBanner error={value.error} since={value.dataUpdatedAt} />}
      {value.data ? (
        <Content attempt={attempt} runId={runId} series={series} value={value.data} />
      ) : value.error ? (
        <ErrorState
          error={value.error}
          onRetry={() => void value.refetch()}
          what={`${series.name} could not be loaded`}
        />
      ) : (
        <Skeleton className="h-24 w-full" />
      )}
    </article>
  );
}

interface PlaceProps {
  value: MediaValue;
  onNth: (nth: number) => void;
  onStep: (step: number) => void;
}

/** Which value is shown: its step, with the nearest ones of its name, and which one where a step has several. */
function Place({ value, onNth, onStep }: PlaceProps) {
  const { name, nth, of, previous_step: previous, next_step: next } = value;
  const go = (step: number | null | undefined) => typeof step === "number" && onStep(step);
  return (
    <span className="flex flex-wrap items-center gap-1 text-muted text-xs" title={formatUtc(value.at)}>
      <Turn
        disabled={previous === null}
        label={`Previous step of ${name}`}
        onClick={() => go(previous)}
        to="left"
      />
      step {formatInteger(value.step)}
      <Turn disabled={next === null} label={`Next step of ${name}`} onClick={() => go(next)} to="right" />
      {of > 1 && (
        <>
          <Turn disabled={nth <= 1} label="Previous of this step" onClick={() => onNth(nth - 1)} to="left" />
          {formatInteger(nth)} of {formatInteger(of)}
          <Turn disabled={nth >= of} label="Next of this step" onClick={() => onNth(nth + 1)} to="right" />
        </>
      )}
    </span>
  );
}

interface TurnProps {
  to: "left" | "right";
  label: string;
  disabled: boolean;
  onClick: () => void;
}

/** It keeps the focus where there is no further one, so that the keyboard finds it. */
function Turn({ to, label, disabled, onClick }: TurnProps) {
  return (
    <IconButton
      aria-disabled={disabled}
      className="aria-disabled:cursor-default aria-disabled:opacity-40"
      label={label}
      onClick={() => !disabled && onClick()}
    >
      <Icon className={to === "left" ? "rotate-180" : ""} name="right" size={12} />
    </IconButton>
  );
}

interface ContentProps {
  runId: string;
  series: MediaSeries;
  attempt: string | undefined;
  value: MediaValue;
}

function Content({ runId, series, attempt, value }: ContentProps) {
  if (value.histogram) {
    return (
      <div className="grid gap-x-6 gap-y-3 md:grid-cols-[minmax(0,1fr)_260px]">
        <OverSteps attempt={attempt} runId={runId} series={series} step={value.step} />
        <HistogramBars histogram={value.histogram} />
      </div>
    );
  }
  if (value.table) return <LoggedTable name={series.name} table={value.table} />;
  if (typeof value.text === "string") return <LoggedText text={value.text} />;
  return <Picture runId={runId} value={value} />;
}

function OverSteps({ runId, series, attempt, step }: Omit<ContentProps, "value"> & { step: number }) {
  const found = useQuery(histogramsQuery(runId, { series, attempt }));
  if (found.data) return <HistogramMap found={found.data} step={step} />;
  if (found.error) {
    return (
      <ErrorState
        error={found.error}
        onRetry={() => void found.refetch()}
        what="The steps could not be loaded"
      />
    );
  }
  return <Skeleton className="h-36 w-full" />;
}

/** Few pixels are drawn large, and as pixels. */
const SMALL = 96;

function Picture({ runId, value }: { runId: string; value: MediaValue }) {
  const { width, height } = value;
  const isSmall = (width ?? 0) <= SMALL && (height ?? 0) <= SMALL;
  const facts = `${width} x ${height}, ${formatBytes(value.size_bytes)}`;
  return (
    <figure>
      <a href={pngAddress(runId, value.id)} rel="noreferrer" target="_blank">
        <img
          alt={`${value.name} of step ${value.step}, ${facts}`}
          className="max-h-80 max-w-full border border-line bg-surface"
          height={height ?? undefined}
          src={pngAddress(runId, value.id)}
          style={isSmall ? { imageRendering: "pixelated", width: 192, height: "auto" } : { height: "auto" }}
          width={width ?? undefined}
        />
      </a>
      <figcaption className="pt-0.5 text-2xs text-muted">{facts}</figcaption>
    </figure>
  );
}
