import { nonEmpty, optional, wholeNumber } from "@/lib/search-params";

/**
 * What the form begins with: the program and options of the run `from`, or those of version `v` of `job`; `resume` is a
 * checkpoint that the new run resumes from.
 */
export function submitSearch(search: Record<string, unknown>) {
  return optional({
    from: nonEmpty(search.from),
    resume: nonEmpty(search.resume),
    job: nonEmpty(search.job),
    v: wholeNumber(search.v, 1),
  });
}
