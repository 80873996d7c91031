import { oneOf, optional } from "@/lib/search-params";

export const BY = ["owner", "host", "project"] as const;
export const DAYS = ["1", "7", "30", "90"] as const;

export function usageSearch(search: Record<string, unknown>) {
  return optional({
    by: oneOf(search.by, BY),
    /** Of runs that ended in the last so many. */
    days: oneOf(String(search.days), DAYS),
  });
}
