/** What a run's program took for its parameters: as they were given, else by default, as far as its source tells. */
import type { JsonValue, Run } from "@/api/schema";

type Told = Pick<Run, "parameters" | "spec">;

/** The defaults of those that were not given. */
export function leftOut({ parameters, spec }: Told): Record<string, JsonValue> {
  return Object.fromEntries(
    Object.entries(spec.defaults ?? {}).filter(([name]) => !Object.hasOwn(parameters, name)),
  );
}

/** All of them, those that were given first. */
export function usedParameters(run: Told): Record<string, JsonValue> {
  return { ...run.parameters, ...leftOut(run) };
}
