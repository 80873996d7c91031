import { flag, nonEmpty, optional } from "@/lib/search-params";

/**
 * The Runs page's view state in the URL. `q` is a filter by words (`state:running job:digits words`), `where` one of the filter
 * language; both hold. `columns` are names of fields, as they are written in a filter, one after the other.
 */
export function runsSearch(search: Record<string, unknown>) {
  return optional({
    q: nonEmpty(search.q),
    where: nonEmpty(search.where),
    sort: nonEmpty(search.sort),
    columns: nonEmpty(search.columns),
    group: nonEmpty(search.group),
    archived: flag(search.archived),
  });
}

export type RunsSearch = ReturnType<typeof runsSearch>;

/** The names in `columns`; a comma in quotes belongs to a name. */
export function columnNames(columns: string | undefined): string[] {
  const parts = columns?.match(/(?:[^,"]|"(?:[^"\\]|\\.)*")+/g) ?? [];
  return [...new Set(parts.map((part) => part.trim()).filter(Boolean))].slice(0, 30);
}
