import type { PrincipalRef } from "@/api/schema";

/** The filter of lists of runs by who submitted them; undefined where nobody knows. */
export function ownerFilter(owner: PrincipalRef): string | undefined {
  const word = owner.name && !owner.name.includes('"') ? owner.name : owner.id;
  return word ? `owner:${quoted(word)}` : undefined;
}

/** A word of a filter, which ends at a space unless it stands in quotes. */
export function quoted(word: string): string {
  return /\s/.test(word) ? `"${word}"` : word;
}
