/** What happened to runs between two looks at their list, in the words of alerts. */

/** What is compared of a run. */
export interface SeenRun {
  readonly id: string;
  readonly job: string;
  readonly state: string;
  readonly created_at: string;
  readonly stalled_at?: string | null;
  readonly reason?: { readonly message: string } | null;
  readonly first_non_finite?: { readonly name: string; readonly step: number } | null;
}

export interface BrowserAlert {
  readonly run: string;
  /** The same for the same thing: a browser shows one of a tag. */
  readonly tag: string;
  readonly title: string;
  readonly text: string;
}

const ENDED: Readonly<Record<string, string>> = {
  SUCCEEDED: "succeeded",
  FAILED: "failed",
  CANCELLED: "was cancelled",
};

/** `since`: when the first look was, in milliseconds; a run that is older and was not seen then tells nothing. */
export function alertsBetween(
  before: ReadonlyMap<string, SeenRun>,
  after: readonly SeenRun[],
  since: number,
): BrowserAlert[] {
  return after.flatMap((run) => {
    const old = before.get(run.id);
    if (!old && Date.parse(run.created_at) < since) return [];
    return alertsOf(old, run);
  });
}

function alertsOf(old: SeenRun | undefined, run: SeenRun): BrowserAlert[] {
  const told: BrowserAlert[] = [];
  const tell = (what: string, words: string, text: string) =>
    told.push({ run: run.id, tag: `${run.id} ${what}`, title: `${run.job} ${words}`, text });
  const nan = run.first_non_finite;
  if (nan && !old?.first_non_finite) {
    tell("non-finite", "has its first NaN or infinity", `${nan.name} at step ${nan.step}`);
  }
  if (run.stalled_at && run.stalled_at !== old?.stalled_at) {
    tell(`stalled ${run.stalled_at}`, "stands still", "Its steps get no further.");
  }
  const end = ENDED[run.state];
  if (end && !(old && ENDED[old.state])) tell("end", end, run.reason?.message ?? "");
  return told;
}
