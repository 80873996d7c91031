import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { isApiError } from "@/api/errors";
import { keys, runsQuery } from "@/api/queries";
import type { RunListView, RunSummary } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { DataTable } from "@/components/ui/data-table";
import { ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { count } from "@/lib/format";
import { useLiveList } from "@/lib/live";
import { columnsOf } from "./columns";
import { NoRuns } from "./empty";
import { andAlso, nextSort, wholeExpression } from "./expression";
import { parseFilter, toQuery } from "./filter";
import { FilterBar } from "./filter-bar";
import type { Flaw } from "./filter-text";
import { Groups } from "./groups";
import { countQuery } from "./queries";
import { columnNames, type RunsSearch } from "./search";
import { SelectionBar } from "./selection-bar";
import { type Selection, useSelection } from "./use-selection";

const route = getRouteApi("/runs");

/** Every run, newest first unless sorted otherwise: the table is the page. */
export function RunsPage() {
  useLiveList("runs", [keys.runs]);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const selection = useSelection();
  const chosen = useMemo(() => columnNames(search.columns), [search.columns]);
  const archived = search.archived ?? false;
  const filter = parseFilter(search.q ?? "");
  const query = { ...toQuery(filter, search.sort), where: search.where, column: chosen, archived };
  const runs = useInfiniteQuery({ ...runsQuery(query), placeholderData: (old) => old, retry: retried });
  const where = wholeExpression(query);
  const matching = useQuery(countQuery(where, archived));
  const set = (next: RunsSearch) => {
    if ("where" in next || "q" in next || "archived" in next) selection.clear();
    void navigate({ search: (old) => ({ ...old, ...next }), replace: true });
  };
  const flaw = runs.error ? flawOf(runs.error, search.where) : null;
  const found = runs.data?.pages.flatMap((page) => page.items);
  // Rows below a filter that cannot be read would be taken for what it matches.
  const rows = flaw ? undefined : found;
  const view: RunListView = {
    where,
    sort: search.sort ?? "",
    columns: chosen,
    group: search.group ?? "",
    archived,
  };
  return (
    <div className="px-4 py-5 lg:px-6">
      <h1 className="sr-only">Runs</h1>
      <FilterBar columns={chosen} filter={filter} flaw={flaw} onSet={set} search={search} view={view} />
      <SelectionBar
        archived={archived}
        matching={matching.data?.matching}
        rows={rows ?? []}
        selection={selection}
        where={where}
      />
      {runs.error && rows && !flaw && <StaleBanner error={runs.error} since={runs.dataUpdatedAt} />}
      {search.group && !flaw ? (
        <Groups
          archived={archived}
          by={search.group}
          onOpen={(condition) => set({ where: andAlso(search.where, condition), group: undefined })}
          where={where}
        />
      ) : rows ? (
        <Rows
          chosen={chosen}
          filtered={where !== ""}
          onSet={set}
          rows={rows}
          search={search}
          selection={selection}
        />
      ) : flaw ? null : runs.error ? (
        <ErrorState
          error={runs.error}
          onRetry={() => void runs.refetch()}
          what="The runs could not be loaded"
        />
      ) : (
        <SkeletonRows label="runs" rows={12} />
      )}
      {rows && rows.length > 0 && !search.group && (
        <div className="flex items-center gap-4 py-3 text-muted tabular-nums">
          {rows.length.toLocaleString("en")} of {count(matching.data?.matching ?? rows.length, "run")} shown
          {runs.hasNextPage && (
            <Button compact disabled={runs.isFetchingNextPage} onClick={() => void runs.fetchNextPage()}>
              {runs.isFetchingNextPage ? "Loading" : "Load more"}
            </Button>
          )}
        </div>
      )}
    </div>
  );
}

interface RowsProps {
  rows: readonly RunSummary[];
  chosen: readonly string[];
  filtered: boolean;
  search: RunsSearch;
  selection: Selection;
  onSet: (next: RunsSearch) => void;
}

function Rows({ rows, chosen, filtered, search, selection, onSet }: RowsProps) {
  const navigate = route.useNavigate();
  if (rows.length === 0) return <NoRuns filtered={filtered} />;
  const sorting = {
    sort: search.sort,
    onSort: (name: string) => onSet({ sort: nextSort(search.sort, name) }),
  };
  return (
    <DataTable
      columns={columnsOf(chosen, sorting, selection, rows)}
      keyboard
      label="Runs"
      onRowClick={(run) => void navigate({ to: "/runs/$runId/metrics", params: { runId: run.id } })}
      rowKey={(run) => run.id}
      rows={rows}
      twoLines
    />
  );
}

/** What the server says of the filter, at its place; null for an error of any other kind. */
function flawOf(error: unknown, where: string | undefined): Flaw | null {
  const message = isApiError(error) ? error.field("where") : undefined;
  if (!isApiError(error) || message === undefined || !where) return null;
  const { at, length, nearest } = error.context;
  return {
    message,
    at: typeof at === "number" ? at : 0,
    length: typeof length === "number" ? length : 1,
    nearest: Array.isArray(nearest) ? nearest.map(String) : [],
  };
}

/** What the server refused, it refuses again. */
function retried(failures: number, error: Error): boolean {
  return failures < 2 && !(isApiError(error) && error.status >= 400 && error.status < 500);
}
