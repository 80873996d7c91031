import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Arrivals, MemberArrival } from "@/api/schema";
import { type Fact, Facts } from "@/components/ui/facts";
import { Icon } from "@/components/ui/icons";
import { Section } from "@/components/ui/section";
import { Segmented } from "@/components/ui/segmented";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { classNames } from "@/lib/class-names";
import { count, formatInteger } from "@/lib/format";
import { arrivalsQuery, stragglerQuery } from "../queries";
import { colorOfPart, formatMs, PARTS, partsOf, unmeasuredText } from "./arrival-times";
import { PastSlider } from "./past-slider";

type Of = "median" | "latest";

/** Compared steps below which the server names nobody. */
const LEAST = 8;

/** Whom do the others wait for? */
export function ArrivalTiles({ runId, ended }: { runId: string; ended: boolean }) {
  const [call, setCall] = useState<number>();
  const query = useQuery(arrivalsQuery(runId, call));
  const [of, setOf] = useState<Of>("median");
  const found = query.data;
  if (found && found.members.length === 0) return null;
  return (
    <Section
      aside={
        found && !found.unmeasured ? (
          <Segmented
            choices={[
              { value: "median", label: "Median" },
              { value: "latest", label: "Latest" },
            ]}
            label="Of the steps"
            onChange={setOf}
            value={of}
          />
        ) : undefined
      }
      note={found && noteOf(found)}
      title="Arrival at the collectives"
    >
      {query.error && !found && (
        <ErrorState
          error={query.error}
          onRetry={() => void query.refetch()}
          what="The arrivals could not be loaded"
        />
      )}
      {query.error && found && <StaleBanner error={query.error} since={query.dataUpdatedAt} />}
      {query.isPending && <SkeletonRows label="the arrivals" rows={3} />}
      {found && <CallSlider calls={found.calls ?? []} onChange={setCall} value={call} />}
      {found && <Tiles ended={ended} found={found} isNow={call === undefined} of={of} />}
    </Section>
  );
}

interface CallSliderProps {
  calls: readonly number[];
  /** None is the newest. */
  value: number | undefined;
  onChange: (call: number | undefined) => void;
}

/** Earlier steps. */
function CallSlider({ calls, value, onChange }: CallSliderProps) {
  if (calls.length < 2) return null;
  const at =
    value === undefined
      ? undefined
      : Math.max(
          0,
          calls.findLastIndex((call) => call <= value),
        );
  return (
    <PastSlider
      at={at}
      label="Steps"
      last={calls.length - 1}
      onChange={(place) => onChange(place === undefined ? undefined : calls[place])}
      text={at === undefined ? "now" : `up to call ${formatInteger(calls[at])}`}
    />
  );
}

function noteOf({ compared, step_ms: step, error_ms: error, unmeasured }: Arrivals): string {
  if (unmeasured === "executor") return "one process starts all replicas together";
  if (step === null || step === undefined) return "";
  const measured = error ? `, members' measures of one differ by ${formatMs(error)}` : "";
  return `${count(compared, "sampled step")} of ${formatMs(step)}${measured}`;
}

interface TilesProps {
  found: Arrivals;
  of: Of;
  ended: boolean;
  isNow: boolean;
}

function Tiles({ found, of, ended, isNow }: TilesProps) {
  // Now it is the run's own, which its header speaks of.
  const newest = useQuery(stragglerQuery(found.run)).data;
  const straggler = isNow ? newest : found.straggler;
  const { unmeasured } = found;
  return (
    <div className="pt-3" data-testid="arrivals">
      {!unmeasured && !straggler && (
        <p className="mb-3 max-w-3xl text-pretty">
          {found.compared < LEAST
            ? `No straggler is named by fewer than ${LEAST} sampled steps.`
            : `No straggler: nobody ${ended || !isNow ? "came" : "comes"} last in four of five sampled steps at a cost of 10 % of a step.`}
        </p>
      )}
      <ul className="grid grid-cols-[repeat(auto-fill,minmax(min(100%,16rem),1fr))] gap-3">
        {found.members.map((member) => (
          <Tile
            found={found}
            isLast={straggler?.rank === member.rank}
            key={member.rank}
            member={member}
            of={of}
          />
        ))}
      </ul>
      {found.next && (
        <p className="mt-3 text-muted text-xs">
          The first {formatInteger(found.members.length)} members; all by{" "}
          <code>drumline arrivals {found.run}</code>.
        </p>
      )}
      {!unmeasured && <Explanation />}
    </div>
  );
}

interface TileProps {
  member: MemberArrival;
  found: Arrivals;
  of: Of;
  isLast: boolean;
}

function Tile({ member, found, of, isLast }: TileProps) {
  const times = member[of];
  return (
    <li
      className={classNames(
        "min-w-0 rounded-panel border px-3 py-2.5",
        isLast ? "border-warn bg-warn-soft" : "border-line",
      )}
      data-straggler={isLast || undefined}
      data-testid="arrival"
    >
      <p className="mb-2 flex items-baseline gap-2">
        <strong className="truncate">{member.host_name}</strong>
        <span className="shrink-0 text-muted text-xs">rank {member.rank}</span>
        {isLast && (
          <span className="ml-auto inline-flex shrink-0 items-center gap-1 self-center text-warn text-xs">
            <Icon name="warning" size={12} />
            straggler: comes last
          </span>
        )}
      </p>
      {times ? (
        <>
          <Bar times={times} />
          <div className="text-xs">
            <Facts facts={factsOf(member, times, found)} />
          </div>
        </>
      ) : (
        <p className="text-muted text-xs">{unmeasuredText(found)}</p>
      )}
    </li>
  );
}

function factsOf(
  member: MemberArrival,
  times: NonNullable<MemberArrival["median"]>,
  found: Arrivals,
): Fact[] {
  return [
    [
      "Arrival",
      <span key="arrival">
        {formatMs(times.arrival_ms)}
        <span className="block text-muted">input {formatMs(times.input_ms)}</span>
        <span className="block text-muted">own code {formatMs(times.own_code_ms)}</span>
        <span className="block text-muted">dispatch {formatMs(times.dispatch_ms)}</span>
      </span>,
    ],
    ["Wait for others", formatMs(times.wait_ms)],
    ["Devices", formatMs(times.devices_ms)],
    ["Came last", `${formatInteger(member.arrived_last)} of ${formatInteger(found.compared)}`],
  ];
}

function Bar({ times }: { times: NonNullable<MemberArrival["median"]> }) {
  const parts = partsOf(times).filter(({ ms }) => ms > 0);
  const whole = parts.reduce((sum, { ms }) => sum + ms, 0);
  const text = parts.map(({ name, ms }) => `${name} ${formatMs(ms)}`).join(", ");
  return (
    <div
      aria-label={`A step: ${text}`}
      className="mb-2 flex h-3.5 w-full overflow-hidden rounded-control"
      role="img"
    >
      {parts.map(({ name, ms, color }) => (
        <span
          className="h-full border-bg not-first:border-l"
          key={name}
          style={{ width: `${(100 * ms) / whole}%`, background: color }}
          title={`${name}: ${formatMs(ms)}`}
        />
      ))}
    </div>
  );
}

function Explanation() {
  return (
    <>
      <ul className="mt-4 flex flex-wrap gap-x-4 gap-y-1 text-muted text-xs">
        {PARTS.map((name) => (
          <li className="inline-flex items-center gap-1.5" key={name}>
            <span
              aria-hidden
              className="size-2.5 shrink-0 rounded-[2px]"
              style={{ background: colorOfPart(name) }}
            />
            {name}
          </li>
        ))}
      </ul>
      <p className="mt-2 max-w-3xl text-muted text-xs">
        Each member counts on its own clock from the end of one collective. Devices is the same for all: a
        member whose devices compute longer is told apart by traced steps only, below.
      </p>
    </>
  );
}
