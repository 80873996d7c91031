import type { RunsFilter } from "@/api/queries";
import type { RunState } from "@/api/schema";
import { quoted } from "@/components/runs/owner";

/** The states a list can be narrowed to, under the words that stand in the URL. */
export const STATE_WORDS = {
  queued: ["QUEUED"],
  starting: ["PLACED"],
  running: ["RUNNING"],
  retrying: ["RETRY_WAIT"],
  cancelling: ["CANCELLING"],
  succeeded: ["SUCCEEDED"],
  failed: ["FAILED"],
  cancelled: ["CANCELLED"],
} as const satisfies Record<string, readonly RunState[]>;

export type StateWord = keyof typeof STATE_WORDS;

/** A filter as it is typed, taken apart. */
export interface ParsedFilter {
  states: StateWord[];
  job: string | undefined;
  /** Of the job; without one it means nothing. */
  version: number | undefined;
  /** Name of who submitted it, or the id of that token or session. */
  owner: string | undefined;
  /** Id of a batch or sweep. */
  batch: string | undefined;
  labels: string[];
  words: string[];
  /** Parts that mean nothing, such as `state:sleeping`; they are shown and not sent. */
  unknown: string[];
}

/** `state:running,queued job:digits version:2 owner:"ann b" batch:bat_01 label:team=vision words` → its parts. */
export function parseFilter(text: string): ParsedFilter {
  const filter: ParsedFilter = {
    states: [],
    job: undefined,
    version: undefined,
    owner: undefined,
    batch: undefined,
    labels: [],
    words: [],
    unknown: [],
  };
  for (const part of text.match(PARTS) ?? []) {
    const [key, value] = split(part);
    if (key === "state") addStates(filter, value, part);
    else if (key === "job" && value) filter.job = value;
    else if (key === "version" && /^[1-9]\d{0,8}$/.test(value)) filter.version = Number(value);
    else if (key === "owner" && unquoted(value)) filter.owner = unquoted(value);
    else if (key === "batch" && value) filter.batch = value;
    else if (key === "label" && /^[^=]+=/.test(value)) filter.labels.push(value);
    // No name of a job and no id has a colon: such a word could only find nothing.
    else if (key !== null) filter.unknown.push(part);
    else filter.words.push(part);
  }
  return filter.job ? filter : withoutVersion(filter);
}

/** Each job counts its own versions. */
function withoutVersion(filter: ParsedFilter): ParsedFilter {
  if (filter.version === undefined) return filter;
  return { ...filter, version: undefined, unknown: [...filter.unknown, `version:${filter.version}`] };
}

/** The inverse of parseFilter, in a fixed order, so that equal filters have equal addresses. */
export function formatFilter(filter: ParsedFilter): string | undefined {
  const parts = [
    filter.states.length > 0 && `state:${filter.states.join(",")}`,
    filter.job && `job:${filter.job}`,
    filter.version && `version:${filter.version}`,
    filter.owner && `owner:${quoted(filter.owner)}`,
    filter.batch && `batch:${filter.batch}`,
    ...filter.labels.map((label) => `label:${label}`),
    ...filter.words,
    ...filter.unknown,
  ];
  return parts.filter(Boolean).join(" ") || undefined;
}

/** With `word` among the states, or without it where it was. */
export function toggleState(filter: ParsedFilter, word: StateWord): ParsedFilter {
  const states = filter.states.includes(word)
    ? filter.states.filter((other) => other !== word)
    : [...filter.states, word];
  return { ...filter, states };
}

/** What is asked of the server. */
export function toQuery(filter: ParsedFilter, sort: RunsFilter["sort"]): RunsFilter {
  return {
    state: filter.states.flatMap((word) => STATE_WORDS[word]),
    job: filter.job,
    version: filter.version,
    owner: filter.owner,
    batch: filter.batch,
    label: filter.labels,
    q: filter.words.join(" ") || undefined,
    sort: sort || "-created",
  };
}

function addStates(filter: ParsedFilter, value: string, part: string): void {
  for (const word of value.toLowerCase().split(",")) {
    if (!(word in STATE_WORDS)) filter.unknown.push(part);
    else if (!filter.states.includes(word as StateWord)) filter.states.push(word as StateWord);
  }
}

/** Why a part was left out, in words that follow it. */
export function flawOf(part: string): string {
  const [key, value] = split(part);
  if (key === "version" && /^\d+$/.test(value) && Number(value) > 0) return "needs a job:NAME beside it";
  if (key === "state") return `is no state; the states are ${Object.keys(STATE_WORDS).join(", ")}`;
  if (key === "label") return "is not of the form label:NAME=VALUE";
  if (key !== null && KEYS.includes(key)) return value ? "is no number of a version" : "has no value";
  return `is no filter; the filters are ${KEYS.map((known) => `${known}:`).join(", ")}`;
}

const KEYS = ["state", "job", "version", "owner", "batch", "label"];
/** Names of owners may have spaces, and stand in quotes then. */
const PARTS = /owner:"[^"]*"|\S+/g;

function unquoted(value: string): string {
  return value.replace(/^"([^"]*)"$/, "$1");
}

function split(part: string): [string | null, string] {
  const at = part.indexOf(":");
  return at < 0 ? [null, part] : [part.slice(0, at), part.slice(at + 1)];
}
