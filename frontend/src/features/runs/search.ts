import { nonEmpty, oneOf, optional } from "@/lib/search-params";

/** The Runs page's view state in the URL: `q` is the filter as it is typed, `state:running job:digits label:team=vision words`. */
export function runsSearch(search: Record<string, unknown>) {
  return optional({
    q: nonEmpty(search.q),
    sort: oneOf(search.sort, ["-created", "created"]),
  });
}
