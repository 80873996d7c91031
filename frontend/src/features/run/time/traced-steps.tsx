import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { runQuery } from "@/api/queries";
import type { PlacedDevice, Profile, ProfileLanes } from "@/api/schema";
import { Button, buttonClass } from "@/components/ui/button";
import { Section } from "@/components/ui/section";
import { Select } from "@/components/ui/select";
import { EmptyState, ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { count, formatBytes, formatInteger } from "@/lib/format";
import { GapNote } from "../gap-note";
import { placementQuery } from "../queries";
import { unmeasuredText } from "../throughput";
import { Lane, Ticks } from "./lane";
import { LostTraces } from "./lost-traces";
import type { Range } from "./model";
import {
  blocksOf,
  FILLS,
  formatMs,
  type Kind,
  LABELS,
  leftOutText,
  nameOf,
  type Operation,
  operationAt,
  operationsOf,
  sentenceOf,
  ticksOf,
} from "./profile";
import { fileAddress, profileQuery, profilesQuery } from "./queries";

const route = getRouteApi("/runs/$runId/time");
/** Lanes at first; a click has all. */
const FEW_LANES = 16;
const TICKS = 6;
const NS = 1e6;

/** What did each device do within a step? */
export function TracedSteps({ runId, ended }: { runId: string; ended: boolean }) {
  const pages = useInfiniteQuery(profilesQuery(runId));
  const { trace } = route.useSearch();
  const navigate = route.useNavigate();
  const all = pages.data?.pages.flatMap(({ items }) => items) ?? [];
  const chosen = all.find(({ id }) => id === trace) ?? all[0];
  if (!pages.data)
    return (
      <Section title="Traced steps">
        {pages.error ? (
          <ErrorState
            error={pages.error}
            onRetry={() => void pages.refetch()}
            what="Traced steps could not be loaded"
          />
        ) : (
          <SkeletonRows label="traced steps" rows={3} />
        )}
      </Section>
    );
  const isGang = new Set(all.map(({ rank }) => rank)).size > 1;
  const lost = pages.data.pages[0]?.lost ?? [];
  const choose = (id: string) =>
    void navigate({ search: (old) => ({ ...old, trace: id }), replace: true, resetScroll: false });
  return (
    <Section
      aside={
        chosen && (
          <>
            {pages.hasNextPage && (
              <Button compact disabled={pages.isFetching} onClick={() => void pages.fetchNextPage()}>
                Older ones
              </Button>
            )}
            <Select
              choices={all.map((each) => ({
                value: each.id,
                label: nameOf(each, isGang),
                note: shareText(each),
              }))}
              compact
              label="Traced step"
              onChange={choose}
              value={chosen.id}
            />
          </>
        )
      }
      note={all.length > 0 && `${formatInteger(all.length)}${pages.hasNextPage ? " newest" : ""}`}
      title="Traced steps"
    >
      <div className="pt-3 empty:hidden">
        <GapNote runId={runId} what="profile" />
        <LostTraces lost={lost} />
      </div>
      {chosen ? (
        <Traced key={chosen.id} profile={chosen} runId={runId} />
      ) : (
        <NoTraces ended={ended} isLost={lost.length > 0} runId={runId} />
      )}
    </Section>
  );
}

function shareText({ unmeasured, collective_ns: ns, span_ns: span }: Profile): string {
  if (unmeasured) return unmeasuredText(unmeasured);
  return `in collectives ${Math.round((100 * (ns ?? 0)) / Math.max(1, span))} %`;
}

function NoTraces({ runId, ended, isLost }: { runId: string; ended: boolean; isLost: boolean }) {
  const reason = useQuery(runQuery(runId)).data?.progress.throughput?.sampled_unknown;
  if (isLost) return <EmptyState title="No trace of this run is kept." />;
  const title = ended ? "No step of this run was traced." : "No step of this run was traced so far.";
  if (reason === "busy")
    return (
      <EmptyState title={title}>
        The program traces itself with jax.profiler, and a process has one trace at a time.
      </EmptyState>
    );
  if (reason)
    return (
      <EmptyState title={title}>
        It makes fewer calls of <code>strategy.run</code> than its <code>record.profile_every</code>
        {ended ? "." : ", or has not come that far yet."}
      </EmptyState>
    );
  return (
    <EmptyState snippet="drumline submit program.py --record profile_every=100" title={title}>
      A run that is submitted with <code>record.profile_every</code> traces the last of every so many calls of{" "}
      <code>strategy.run</code>: what each device computes, exchanges and waits for is drawn here.
    </EmptyState>
  );
}

function Traced({ profile, runId }: { profile: Profile; runId: string }) {
  const lanes = useQuery(profileQuery(runId, profile.id));
  return (
    <div className="space-y-3 pt-3" data-testid="traced-step">
      {profile.unmeasured ? (
        <p className="text-muted">{unmeasuredText(profile.unmeasured)}.</p>
      ) : (
        <p>{timesText(profile)}</p>
      )}
      {lanes.error && !lanes.data && (
        <ErrorState
          error={lanes.error}
          onRetry={() => void lanes.refetch()}
          what="Its lanes could not be loaded"
        />
      )}
      {lanes.isPending && <SkeletonRows label="lanes" rows={Math.min(profile.devices, 8)} />}
      {lanes.data && profile.span_ns > 0 && <DeviceLanes profile={lanes.data} runId={runId} />}
      <Download profile={profile} runId={runId} />
    </div>
  );
}

function timesText(profile: Profile): string {
  const { span_ns: span, computing_ns: computing, collective_ns: collective, both_ns: both } = profile;
  const share = (ns: number | null | undefined) =>
    `${formatMs((ns ?? 0) / NS)} (${Math.round((100 * (ns ?? 0)) / Math.max(1, span))} %)`;
  const parts = [
    `computing ${share(computing)}`,
    `in collectives ${share(collective)}`,
    `idle ${share(profile.idle_ns)}`,
    (both ?? 0) > 0 && `computing and exchanging at once ${share(both)}`,
  ].filter(Boolean);
  return `${formatMs(span / NS)} from the first operation to the last; each of ${count(profile.devices, "device")}, in the mean: ${parts.join(", ")}.`;
}

function DeviceLanes({ profile, runId }: { profile: ProfileLanes; runId: string }) {
  const span = profile.span_ns / NS;
  const [range, setRange] = useState<Range>({ from: 0, to: span });
  const [cursor, setCursor] = useState<{ device: string; at: number }>();
  const [all, setAll] = useState(false);
  const placed = useQuery({ ...placementQuery(runId), placeholderData: keepPreviousData }).data?.devices;
  const names = useMemo(() => namesOf(profile, placed), [profile, placed]);
  const lanes = useMemo(
    () => profile.times.map(({ device }) => ({ device, operations: operationsOf(profile, device) })),
    [profile],
  );
  const pointed = lanes.find(({ device }) => device === cursor?.device);
  const isWhole = range.from === 0 && range.to === span;
  return (
    <div data-testid="profile-lanes">
      <p className="h-5 truncate text-muted" data-testid="operation">
        {pointed && cursor
          ? `${names.get(pointed.device)}: ${sentenceOf(operationAt(pointed.operations, cursor.at))}`
          : "Drag over a part to enlarge it."}
      </p>
      <div className="space-y-1 pt-2">
        {lanes.slice(0, all ? undefined : FEW_LANES).map(({ device, operations }) => (
          <OperationLane
            cursor={device === cursor?.device ? cursor.at : undefined}
            key={device}
            name={names.get(device) ?? device}
            onCursor={(at) => setCursor({ device, at })}
            onRange={setRange}
            operations={operations}
            range={range}
          />
        ))}
      </div>
      <Ticks format={formatMs} range={range} ticks={ticksOf(range, TICKS)} />
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
        <Key />
        {!isWhole && (
          <Button compact onClick={() => setRange({ from: 0, to: span })}>
            Whole step
          </Button>
        )}
        {lanes.length > FEW_LANES && !all && (
          <Button compact onClick={() => setAll(true)}>
            All {formatInteger(lanes.length)} devices
          </Button>
        )}
        {profile.left_out > 0 && (
          <span className="text-muted text-xs">
            {count(profile.left_out, "operation")} of the shortest not drawn
          </span>
        )}
        {profile.devices_left_out > 0 && (
          <span className="text-muted text-xs">
            {count(profile.devices_left_out, "more device")} neither drawn nor counted
          </span>
        )}
      </div>
    </div>
  );
}

/** As placement calls them; numbers where the devices are not those of the newest attempt. */
function namesOf(profile: ProfileLanes, placed: readonly PlacedDevice[] | undefined): Map<string, string> {
  const known = new Map(placed?.map((each) => [each.device, `${each.platform}:${each.index}`]));
  return new Map(profile.times.map(({ device }, place) => [device, known.get(device) ?? `device ${place}`]));
}

interface OperationLaneProps {
  name: string;
  operations: readonly Operation[];
  range: Range;
  cursor: number | undefined;
  onCursor: (at: number) => void;
  onRange: (range: Range) => void;
}

function OperationLane({ name, operations, range, cursor, onCursor, onRange }: OperationLaneProps) {
  const blocks = useMemo(() => blocksOf(operations, range), [operations, range]);
  const at = cursor ?? range.from;
  return (
    <Lane
      blocks={blocks}
      cursor={cursor}
      label={`Operations of ${name}`}
      name={name}
      next={(key) => neighbour(operations, at, key)?.begin}
      onCursor={onCursor}
      onRange={onRange}
      range={range}
      valueText={sentenceOf(operationAt(operations, at))}
    />
  );
}

/** The operation that a key leads to from a moment. */
function neighbour(operations: readonly Operation[], at: number, key: string): Operation | undefined {
  if (key === "ArrowRight") return operations.find(({ begin }) => begin > at);
  if (key === "ArrowLeft") return operations.findLast(({ begin }) => begin < at);
  if (key === "Home") return operations[0];
  return key === "End" ? operations.at(-1) : undefined;
}

const KINDS: readonly Kind[] = ["computing", "collective", "idle"];

function Key() {
  return (
    <ul className="flex flex-wrap gap-x-4 gap-y-1 text-muted text-xs">
      {KINDS.map((kind) => (
        <li className="inline-flex items-center gap-1.5" key={kind}>
          <span
            aria-hidden
            className="size-2.5 shrink-0 rounded-[2px] border border-line-strong"
            style={{ background: FILLS[kind] }}
          />
          {LABELS[kind]}
        </li>
      ))}
    </ul>
  );
}

function Download({ profile, runId }: { profile: Profile; runId: string }) {
  if (profile.file_left_out) return <p className="text-muted text-xs">{leftOutText(profile)}</p>;
  if (profile.file_bytes === 0) return null;
  return (
    <p className="flex flex-wrap items-center gap-x-3 gap-y-2 text-muted text-xs">
      <a className={buttonClass("plain", true)} download href={fileAddress(runId, profile.id)}>
        Download trace ({formatBytes(profile.file_bytes)})
      </a>
      <span>
        Unpacked, <code>tensorboard --logdir DIR</code> with xprof opens the directory, and ui.perfetto.dev
        the <code>.trace.json.gz</code> in it.
      </span>
    </p>
  );
}
