import type { ReactNode } from "react";
import { classNames } from "@/lib/class-names";

type Tone = "idle" | "active" | "ok" | "warn" | "bad";

const TONE_CLASS: Record<Tone, string> = {
  idle: "text-idle",
  active: "text-active",
  ok: "text-ok",
  warn: "text-warn",
  bad: "text-bad",
};

const SHAPES = {
  ring: <circle cx="6" cy="6" r="4.2" />,
  quarter: (
    <>
      <circle cx="6" cy="6" r="4.2" />
      <path d="M6 1.800A4.2 4.2 0 0 1 10.2 6H6z" fill="currentColor" stroke="none" />
    </>
  ),
  play: <path d="M3 1.8 10 6l-7 4.200z" fill="currentColor" />,
  tick: <path d="m1.8 6.5 2.8 2.8 5.6-6.3" strokeWidth="1.7" />,
  cross: <path d="m2.3 2.3 7.4 7.400M9.7 2.3 2.3 9.7" strokeWidth="1.7" />,
  triangle: <path d="M6 1.6 10.8 10H1.200z" fill="currentColor" />,
  barred: (
    <>
      <circle cx="6" cy="6" r="4.2" />
      <path d="m3 9 6-6" />
    </>
  ),
} satisfies Record<string, ReactNode>;

interface Appearance {
  word: string;
  tone: Tone;
  shape: keyof typeof SHAPES;
}

/** Every state that the API knows: run, attempt, member, device and host. Icon, word and colour say the same. */
const STATES: Record<string, Appearance> = {
  QUEUED: { word: "Queued", tone: "idle", shape: "ring" },
  PLACED: { word: "Starting", tone: "active", shape: "quarter" },
  RUNNING: { word: "Running", tone: "active", shape: "play" },
  RETRY_WAIT: { word: "Retrying", tone: "warn", shape: "triangle" },
  CANCELLING: { word: "Cancelling", tone: "warn", shape: "barred" },
  SUCCEEDED: { word: "Succeeded", tone: "ok", shape: "tick" },
  FAILED: { word: "Failed", tone: "bad", shape: "cross" },
  CANCELLED: { word: "Cancelled", tone: "idle", shape: "barred" },
  DISPATCHED: { word: "Dispatched", tone: "idle", shape: "ring" },
  CLAIMED: { word: "Claimed", tone: "active", shape: "quarter" },
  STARTING: { word: "Starting", tone: "active", shape: "quarter" },
  FINISHING: { word: "Finishing", tone: "active", shape: "play" },
  PREEMPTED: { word: "Preempted", tone: "warn", shape: "triangle" },
  LOST: { word: "Lost", tone: "bad", shape: "cross" },
  EXPIRED: { word: "Expired", tone: "idle", shape: "barred" },
  PENDING: { word: "Pending", tone: "idle", shape: "ring" },
  EXITED: { word: "Exited", tone: "idle", shape: "tick" },
  FENCED: { word: "Fenced", tone: "idle", shape: "barred" },
  ARRIVING: { word: "Arriving", tone: "active", shape: "quarter" },
  STORED: { word: "Stored", tone: "ok", shape: "tick" },
  KEPT: { word: "Kept", tone: "ok", shape: "tick" },
  DELETED: { word: "Deleted", tone: "idle", shape: "barred" },
  DAMAGED: { word: "Damaged", tone: "bad", shape: "cross" },
  FREE: { word: "Free", tone: "ok", shape: "ring" },
  HELD: { word: "Held", tone: "active", shape: "play" },
  RELEASING: { word: "Releasing", tone: "active", shape: "quarter" },
  QUARANTINED: { word: "Quarantined", tone: "bad", shape: "barred" },
  live: { word: "Live", tone: "ok", shape: "tick" },
  suspect: { word: "Silent", tone: "warn", shape: "triangle" },
  lost: { word: "Lost", tone: "bad", shape: "cross" },
  draining: { word: "Draining", tone: "warn", shape: "quarter" },
  quarantined: { word: "Quarantined", tone: "bad", shape: "barred" },
};

function appearance(state: string): Appearance {
  return STATES[state] ?? { word: state, tone: "idle", shape: "ring" };
}

/** A flaw is a warning, but of what has failed anyway. */
function withFlaw(plain: Appearance, flaw: string | null | undefined): Appearance {
  if (!flaw) return plain;
  const word = `${plain.word}, ${flaw}`;
  return plain.tone === "bad" ? { ...plain, word } : { word, tone: "warn", shape: "triangle" };
}

export function stateWord(state: string): string {
  return appearance(state).word;
}

export function toneClass(tone: Tone): string {
  return TONE_CLASS[tone];
}

interface StateProps {
  state: string;
  /** What is wrong with what came out of it: a success that is none to tick off. */
  flaw?: string | null | undefined;
}

export function StateIcon({ state, flaw, size = 12 }: StateProps & { size?: number }) {
  const { tone, shape } = withFlaw(appearance(state), flaw);
  return (
    <svg
      aria-hidden="true"
      className={classNames("shrink-0", TONE_CLASS[tone])}
      fill="none"
      height={size}
      stroke="currentColor"
      strokeLinecap="round"
      strokeLinejoin="round"
      strokeWidth={1.3}
      viewBox="0 0 12 12"
      width={size}
    >
      {SHAPES[shape]}
    </svg>
  );
}

/** A state as icon, word and colour: never colour alone. */
export function StateBadge({ state, flaw }: StateProps) {
  const { word, tone } = withFlaw(appearance(state), flaw);
  return (
    <span
      className={classNames(
        "inline-flex min-h-5 items-center gap-1.5 whitespace-nowrap align-top",
        // A flaw is several words, which on a phone would push the next column out of sight.
        flaw && "max-sm:max-w-32 max-sm:whitespace-normal max-sm:leading-4",
        TONE_CLASS[tone],
      )}
    >
      <StateIcon flaw={flaw} state={state} />
      {word}
    </span>
  );
}
