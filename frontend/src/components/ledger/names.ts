/** The names of a run's seconds as the page shows them: what they are called, and their colour in every picture. */
import type { Spent } from "@/api/schema";

interface Look {
  label: string;
  /** A token, and how much of it is over the background, in percent: what is alike has one hue. */
  tint: readonly [token: string, percent: number];
}

const LOOKS: Record<Spent, Look> = {
  queue: { label: "queue", tint: ["--idle", 30] },
  backoff: { label: "backoff", tint: ["--idle", 60] },
  handover: { label: "handover", tint: ["--replica-0", 45] },
  bundle: { label: "bundle", tint: ["--replica-0", 70] },
  launch: { label: "launch", tint: ["--replica-0", 100] },
  rendezvous: { label: "rendezvous", tint: ["--replica-7", 100] },
  own_code: { label: "own code", tint: ["--replica-5", 100] },
  compile: { label: "compile", tint: ["--replica-1", 100] },
  steps: { label: "steps", tint: ["--replica-2", 100] },
  redone_steps: { label: "redone steps", tint: ["--replica-2", 45] },
  input: { label: "input", tint: ["--replica-4", 100] },
  checkpoint: { label: "checkpoint", tint: ["--replica-6", 100] },
  waiting_for_telemetry: { label: "waiting for telemetry", tint: ["--replica-3", 50] },
  frozen: { label: "frozen", tint: ["--replica-3", 100] },
  server_away: { label: "server away", tint: ["--bad", 60] },
  host_lost: { label: "host lost", tint: ["--bad", 100] },
  ending: { label: "ending", tint: ["--replica-4", 40] },
  unexplained: { label: "unexplained", tint: ["--text", 100] },
};

export const NAMES = Object.keys(LOOKS) as Spent[];

export function labelOf(name: Spent): string {
  return LOOKS[name].label;
}

/** For `background` and `fill`. */
export function colorOf(name: Spent): string {
  const [token, percent] = LOOKS[name].tint;
  return percent === 100 ? `var(${token})` : `color-mix(in oklab, var(${token}) ${percent}%, var(--bg))`;
}
