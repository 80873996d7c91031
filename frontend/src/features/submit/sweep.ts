import type { JsonValue, ProgramEntrypoint, ProgramParameter } from "@/api/schema";
import { formatInteger } from "@/lib/format";
import { exactText, parseExactly } from "@/lib/wire-numbers";
import type { Draft } from "./draft";
import { buildRequest, type FieldErrors, parseParameter, type Submission } from "./request";

/** What the server takes at once. */
const MOST_RUNS = 10_000;

export type Grid = Readonly<Record<string, JsonValue[]>>;

/** A SweepSubmit over every combination of the values. */
export interface SweepRequest {
  name: string;
  run: Submission;
  sweep: { kind: "grid"; parameters: Grid };
}

type BuiltSweep = { request: SweepRequest; errors: null } | { request: null; errors: FieldErrors };

/** Reads the form as a sweep: a parameter with several values is varied, the others are the same in all runs. */
export function buildSweep(draft: Draft, bundle: string, entrypoint: ProgramEntrypoint): BuiltSweep {
  const grid: Record<string, JsonValue[]> = {};
  const wrong: Record<string, string> = {};
  for (const parameter of entrypoint.parameters) {
    const parts = valuesIn(parameter, draft.parameters[parameter.name] ?? "");
    if (parts.length < 2) continue;
    try {
      grid[parameter.name] = parts.map((part) => parseParameter(parameter, part));
    } catch (error) {
      wrong[`parameters.${parameter.name}`] = `each value ${(error as Error).message}`;
    }
  }
  if (Object.keys(grid).length + Object.keys(wrong).length === 0)
    wrong.sweep = "Nothing varies yet: give a parameter several values, such as 0.1, 0.01.";
  if (sizeOf(grid) > MOST_RUNS)
    wrong.sweep = `${formatInteger(sizeOf(grid))} runs are too many; at most ${formatInteger(MOST_RUNS)}.`;
  const shared = entrypoint.parameters.filter(
    ({ name }) => !(name in grid) && !(`parameters.${name}` in wrong),
  );
  const built = buildRequest(draft, bundle, { ...entrypoint, parameters: shared });
  const errors = { ...built.errors, ...wrong };
  return built.request && Object.keys(wrong).length === 0
    ? {
        request: {
          name: draft.sweepName.trim(),
          run: built.request,
          sweep: { kind: "grid", parameters: grid },
        },
        errors: null,
      }
    : { request: null, errors };
}

/** How many runs every combination makes. */
export function sizeOf(grid: Grid): number {
  return Object.values(grid).reduce((product, values) => product * values.length, 1);
}

/** `0.1, 0.01` as its parts; commas within brackets and braces of JSON do not part values. */
function valuesIn({ type }: ProgramParameter, text: string): string[] {
  const parts = type === "list" || type === "json" ? jsonParts(text) : text.split(",");
  return parts.map((part) => part.trim()).filter(Boolean);
}

function jsonParts(text: string): string[] {
  try {
    return (parseExactly(`[${text}]`) as JsonValue[]).map((value) => exactText(value));
  } catch {
    return [text]; // refused below as one value, with what it should be
  }
}
