import type { ReductionName } from "@/api/schema";

/** Two reductions may share a name where one is inside the step and one outside. */
export function nameKey({ name, origin }: ReductionName): string {
  return `${origin}:${name}`;
}

/** What the program reduces by name first, the all-reduces inside its steps after it. */
export function inOrder(names: readonly ReductionName[]): ReductionName[] {
  const rank = ({ origin }: ReductionName): number => (origin === "host" ? 0 : 1);
  return [...names].sort(
    (a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, "en", { numeric: true }),
  );
}

/** The recorded step nearest to `step`, moved by `by` places; `null` beyond the ends. */
export function stepBeside(steps: readonly number[], step: number, by: -1 | 1): number | null {
  if (by > 0) return steps.find((each) => each > step) ?? null;
  return steps.findLast((each) => each < step) ?? null;
}

/** The recorded step that lies nearest to a place between the first and the last. */
export function nearestStep(steps: readonly number[], place: number): number | null {
  return steps.reduce<number | null>(
    (best, step) => (best === null || Math.abs(step - place) < Math.abs(best - place) ? step : best),
    null,
  );
}
