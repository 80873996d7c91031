/** Which of the compared runs are drawn as lines of their own, and which one the others are held against. */
import { type CompareSearch, parseRuns } from "./search";

/** More lines than these are no picture. */
export const MOST_LINES = 100;

export function baseOf(
  ids: readonly string[],
  { base }: Partial<Pick<CompareSearch, "base">>,
): string | undefined {
  return base && ids.includes(base) ? base : ids[0];
}

/** All but the hidden ones; of more than can be drawn, the base and those that are chosen. */
export function drawnOf(
  ids: readonly string[],
  view: Partial<Pick<CompareSearch, "base" | "hide" | "draw">>,
): ReadonlySet<string> {
  const base = baseOf(ids, view);
  const [hidden, chosen] = [new Set(parseRuns(view.hide)), new Set(parseRuns(view.draw))];
  const many = ids.length > MOST_LINES;
  return new Set(ids.filter((id) => (many ? id === base || chosen.has(id) : !hidden.has(id))));
}
