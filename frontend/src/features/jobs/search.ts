import { optional, wholeNumber } from "@/lib/search-params";

/** `v` is the version that is looked at, `against` the one that it is compared with. */
export function jobSearch(search: Record<string, unknown>) {
  return optional({ v: wholeNumber(search.v, 1), against: wholeNumber(search.against, 1) });
}
