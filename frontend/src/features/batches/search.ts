import { nonEmpty, oneOf, optional } from "@/lib/search-params";

/** `sort` is the column as the API names it, `-` before it turns it; `metric` and `x` choose what the picture shows. */
export function batchSearch(search: Record<string, unknown>) {
  return optional({
    sort: nonEmpty(search.sort),
    metric: nonEmpty(search.metric),
    picture: oneOf(search.picture, ["lines", "points"]),
    x: nonEmpty(search.x),
  });
}
