/** Runs side by side: what was asked for and what came out, row by row. */
import type { JsonValue, Run } from "@/api/schema";
import { leftOut, usedParameters } from "@/components/runs/parameters";
import { briefDigits, formatDuration, formatValue, secondsBetween } from "@/lib/format";
import { exactText, isUserNumber, type UserNumber } from "@/lib/wire-numbers";

export interface Row {
  section: "Parameters" | "Results" | "Configuration";
  name: string;
  /** One text a run; undefined where it has none. */
  values: (string | undefined)[];
  /** The same with all digits of each number. */
  whole: (string | undefined)[];
  /** Whether any run has it otherwise than another. */
  differs: boolean;
  /** Of a parameter: which runs left it at the program's default. */
  byDefault?: boolean[];
}

/** All rows, in each section those that differ first. */
export function rowsOf(runs: readonly Run[], now: number): Row[] {
  const sections: [Row["section"], Record<string, JsonValue | undefined>[]][] = [
    ["Parameters", runs.map(usedParameters)],
    ["Results", runs.map((run) => resultsOf(run, now))],
    ["Configuration", runs.map(configurationOf)],
  ];
  const lacking = runs.map(leftOut);
  return sections.flatMap(([section, things]) => {
    const names = [...new Set(things.flatMap((thing) => Object.keys(thing)))];
    const rows = names.map((name) => {
      const byDefault =
        section === "Parameters" ? lacking.map((lacks) => Object.hasOwn(lacks, name)) : undefined;
      const whole = things.map((thing) => wholeText(thing[name]));
      const brief = things.map((thing) => textOf(thing[name]));
      const apart = new Set(whole).size;
      // Values that only further digits tell apart are shown with all of them.
      return {
        section,
        name,
        values: new Set(brief).size < apart ? whole : brief,
        whole,
        differs: apart > 1,
        byDefault,
      };
    });
    return [...rows.filter(({ differs }) => differs), ...rows.filter(({ differs }) => !differs)];
  });
}

function resultsOf(run: Run, now: number): Record<string, JsonValue | undefined> {
  const took = secondsBetween(run.started_at, run.ended_at, now);
  return {
    state: run.state.toLowerCase(),
    ...flat(run.result, run.result !== null && typeof run.result !== "object" ? "result" : ""),
    took: took === null ? undefined : formatDuration(took),
    attempts: run.attempts,
  };
}

function configurationOf(run: Run): Record<string, JsonValue | undefined> {
  return {
    job: run.job,
    version: run.version,
    strategy: run.strategy,
    replicas: run.replicas,
    platform: run.platform,
    hosts: run.hosts.join(", ") || undefined,
    ...flat(run.limits as unknown as JsonValue, "limits"),
    ...flat(run.retries as unknown as JsonValue, "retries"),
    ...flat(run.resources as unknown as JsonValue, "resources"),
    ...flat(run.labels, "labels"),
    ...flat(programOf(run), ""),
  };
}

/** What the version says, but for what names and dates it, and what stands among the parameters. */
function programOf({ spec }: Run): JsonValue {
  const { id, created_at, job, number, runs, strategy, defaults, ...rest } = spec;
  return rest as unknown as JsonValue;
}

/** `{a: {b: 1}}` as `a.b`; more than three levels stay JSON. */
function flat(value: JsonValue | undefined, path: string, depth = 3): Record<string, JsonValue | undefined> {
  if (value === null || value === undefined) return path ? { [path]: undefined } : {};
  if (typeof value !== "object" || Array.isArray(value) || depth === 0) return { [path]: value };
  return Object.assign(
    {},
    ...Object.entries(value).map(([name, inner]) => flat(inner, path ? `${path}.${name}` : name, depth - 1)),
  );
}

function wholeText(value: JsonValue | undefined): string | undefined {
  if (value === undefined || value === null) return undefined;
  return typeof value === "string" ? value : exactText(value);
}

/** As part of a name, which is short and ends with the id: all digits stand in the rows. */
function nameText(value: JsonValue | undefined): string | undefined {
  const whole = wholeText(value);
  if (!isUserNumber(value) || whole === undefined || whole.length <= MOST_CHARACTERS) return whole;
  return briefDigits(formatValue(value));
}

const MOST_CHARACTERS = 10;

function textOf(value: JsonValue | undefined): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (isUserNumber(value)) return formatValue(value);
  return typeof value === "string" ? value : exactText(value);
}

/** Parameters by which the runs differ, given or left at their defaults. */
export function differing(runs: readonly Run[]): string[] {
  const used = runs.map(usedParameters);
  const names = [...new Set(used.flatMap((parameters) => Object.keys(parameters)))];
  return names.filter((name) => new Set(used.map((parameters) => exactText(parameters[name]))).size > 1);
}

const MOST_NAMED = 3;

/** What tells a run apart: its differing parameters, else its job and version; always with the end of its id. */
export function labelOf(run: Run, names: readonly string[], short: string): string {
  const used = usedParameters(run);
  const told = names
    .slice(0, MOST_NAMED)
    .filter((name) => used[name] !== undefined)
    .map((name) => `${name}=${nameText(used[name])}`);
  return `${told.length > 0 ? told.join(" ") : `${run.job} v${run.version}`} ${short}`;
}

/** Numbers of a result, as the batch page has them. */
export function numbersOf(result: JsonValue): Record<string, UserNumber> {
  const found = Object.entries(flat(result, isUserNumber(result) ? "result" : ""));
  return Object.fromEntries(found.filter((entry): entry is [string, UserNumber] => isUserNumber(entry[1])));
}
