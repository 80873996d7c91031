import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { MemberUsage } from "@/api/schema";
import { ScrollBox } from "@/components/ui/scroll-box";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { formatBytes, formatInteger, formatNumber, formatTime, formatUtc } from "@/lib/format";
import { useNow } from "@/lib/now";
import { usageQuery } from "../queries";
import { PastSlider } from "./past-slider";

/** Of the slider at most: steps between two of its places tell much the same. */
const MOST_PLACES = 200;

const HEADS = ["Rank", "Host", "Processors", "Memory", "Processes", "Device memory", "Told"];

/** How busy is each member's host with it, and how full are its devices? */
export function Usage({ runId, ended }: { runId: string; ended: boolean }) {
  const [step, setStep] = useState<number>();
  const newest = useQuery(usageQuery(runId, ended));
  const past = useQuery({
    ...usageQuery(runId, true, step ?? 0),
    enabled: step !== undefined,
    placeholderData: keepPreviousData,
  });
  const query = step === undefined ? newest : past;
  const found = query.data;
  if (newest.data && newest.data.items.length === 0) return null;
  return (
    <Section note={noteOf(step, ended)} title="Processors and memory">
      {query.error && !found && (
        <ErrorState
          error={query.error}
          onRetry={() => void query.refetch()}
          what="What the members use could not be loaded"
        />
      )}
      {query.error && found && <StaleBanner error={query.error} since={query.dataUpdatedAt} />}
      {query.isPending && <SkeletonRows label="what the members use" rows={2} />}
      {newest.data && <StepSlider members={newest.data.items} onChange={setStep} value={step} />}
      {found && <Table ended={ended || step !== undefined} members={found.items} />}
      {found?.next && (
        <p className="mt-3 text-muted text-xs">
          The first {formatInteger(found.items.length)} members; all by <code>drumline usage {runId}</code>.
        </p>
      )}
    </Section>
  );
}

function noteOf(step: number | undefined, ended: boolean): string {
  if (step !== undefined) return `as of step ${formatInteger(step)}`;
  return ended ? "when they were told last" : "of each member's processes, every few seconds";
}

interface StepSliderProps {
  /** As they are now. */
  members: readonly MemberUsage[];
  /** None is now. */
  value: number | undefined;
  onChange: (step: number | undefined) => void;
}

/** Earlier steps, of a run that tells of any. */
function StepSlider({ members, value, onChange }: StepSliderProps) {
  const newest = Math.max(0, ...members.map(({ step }) => step ?? 0));
  const apart = Math.ceil(newest / MOST_PLACES);
  if (newest < 2) return null;
  return (
    <PastSlider
      at={value === undefined ? undefined : Math.floor(value / apart)}
      label="As of step"
      last={Math.ceil(newest / apart)}
      onChange={(place) => onChange(place === undefined ? undefined : place * apart)}
      text={value === undefined ? "now" : formatInteger(value)}
    />
  );
}

function Table({ members, ended }: { members: readonly MemberUsage[]; ended: boolean }) {
  return (
    <ScrollBox>
      <table className="w-full whitespace-nowrap" data-testid="usage">
        <caption className="sr-only">Processors and memory that each member uses</caption>
        <thead>
          <tr className="border-line border-b text-left text-muted text-xs">
            {HEADS.map((head) => (
              <th className="h-7 pr-6 font-normal last:pr-0" key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {members.map((member) => (
            <Row ended={ended} key={member.rank} member={member} />
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}

function Row({ member, ended }: { member: MemberUsage; ended: boolean }) {
  const { usage } = member;
  const now = useNow();
  return (
    <tr className="h-8 border-line border-b last:border-b-0">
      <td className="pr-6 tabular-nums">{member.rank}</td>
      <th className="pr-6 text-left font-medium" scope="row">
        {member.host_name}
      </th>
      {usage ? (
        <>
          <td className="pr-6">
            <Share
              of={100 * member.host_processors}
              text={`${formatNumber(usage.processor_percent / 100, 2)} of ${formatInteger(member.host_processors)}`}
              used={usage.processor_percent}
            />
          </td>
          <td className="pr-6">
            <Share
              of={member.host_memory_bytes}
              text={`${formatBytes(usage.memory_bytes)} of ${formatBytes(member.host_memory_bytes)}`}
              used={usage.memory_bytes}
            />
          </td>
          <td className="pr-6 tabular-nums">{formatInteger(usage.processes)}</td>
          <td className="pr-6">
            <DeviceMemory devices={usage.devices ?? []} />
          </td>
          <td className="text-muted tabular-nums" title={formatUtc(member.at)}>
            {formatTime(member.at, now)}
          </td>
        </>
      ) : (
        <td className="text-muted" colSpan={5}>
          {ended ? "nothing was told" : "not told yet"}
        </td>
      )}
    </tr>
  );
}

/** Of several devices the fullest: it is the one that runs out. */
function DeviceMemory({ devices }: { devices: NonNullable<NonNullable<MemberUsage["usage"]>["devices"]> }) {
  const fullest = devices.reduce<(typeof devices)[number] | undefined>(
    (most, device) => (most && most.used_bytes >= device.used_bytes ? most : device),
    undefined,
  );
  if (!fullest) return <span className="text-muted">not counted on this platform</span>;
  const limit = fullest.limit_bytes;
  const many = devices.length > 1 ? `, fullest of ${formatInteger(devices.length)}` : "";
  const text = `${formatBytes(fullest.used_bytes)}${limit ? ` of ${formatBytes(limit)}` : ""}${many}`;
  return limit ? <Share of={limit} text={text} used={fullest.used_bytes} /> : <span>{text}</span>;
}

function Share({ used, of, text }: { used: number; of: number; text: string }) {
  const percent = of > 0 ? Math.min(100, (100 * used) / of) : 0;
  return (
    <span className="inline-flex items-center gap-2 tabular-nums">
      <span aria-hidden className="h-2 w-16 shrink-0 overflow-hidden rounded-control bg-line">
        <span
          className="block h-full"
          style={{ width: `${percent}%`, background: percent >= 95 ? "var(--warn)" : "var(--accent)" }}
        />
      </span>
      {text}
    </span>
  );
}
