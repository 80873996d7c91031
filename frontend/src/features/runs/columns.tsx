import type { RunSummary } from "@/api/schema";
import { RUN_COLUMNS } from "@/components/runs/run-columns";
import type { Column } from "@/components/ui/data-table";
import { Icon } from "@/components/ui/icons";
import { classNames } from "@/lib/class-names";
import { escapePieces } from "@/lib/escape";
import { formatDuration, formatUtc, formatValue } from "@/lib/format";
import { isUserNumber, type UserNumber } from "@/lib/wire-numbers";
import type { Selection } from "./use-selection";

type RunColumn = Column<RunSummary>;

const { state, jobOnly, owner, because, strategy, replicas, progress, rate, duration, hosts, created } =
  RUN_COLUMNS;
/** A why of a few words says more than where a run was. */
const whyFirst: RunColumn = { ...because, className: "w-full min-w-32 max-w-0 truncate max-sm:hidden" };
/** A phone has no room for it beside the boxes; the order says it. */
const whenLast: RunColumn = { ...created, className: "max-sm:hidden" };
const whereLast: RunColumn = { ...hosts, className: "max-2xl:hidden" };
const USUAL: readonly RunColumn[] = [
  state,
  jobOnly,
  owner,
  whyFirst,
  strategy,
  replicas,
  progress,
  rate,
  duration,
  whereLast,
  whenLast,
];
/** What a click on the heading of a usual column sorts by. */
const SORTS: Record<string, string> = {
  state: "state",
  job: "job",
  owner: "owner",
  strategy: "strategy",
  replicas: "replicas",
  duration: "duration",
  created: "created",
  note: "note",
};

/** What people wrote of a run, beside its name. */
const note: RunColumn = {
  id: "note",
  header: "Note",
  cell: (run) => run.note && <span title={run.note}>{shownText(run.note)}</span>,
  className: "min-w-24 max-w-40 truncate max-md:hidden 2xl:max-w-48",
};

const OWN: Record<string, RunColumn> = { owner, strategy, replicas, duration, created, state, note };

export interface Sorting {
  sort: string | undefined;
  onSort: (name: string) => void;
}

/** The columns of the list: the usual ones, or state, run and why beside those chosen. */
export function columnsOf(
  chosen: readonly string[],
  sorting: Sorting,
  selection: Selection,
  rows: readonly RunSummary[],
): RunColumn[] {
  const order = rows.map((run) => run.id);
  const shown =
    chosen.length === 0 ? USUAL : [state, jobOnly, narrow, ...chosen.map((name) => chosenColumn(name, rows))];
  const isNoted = rows.some(({ note }) => note) && !chosen.includes("note");
  const columns = isNoted ? withNote(shown) : shown;
  return [selectColumn(selection, order), ...columns.map((column) => sortable(column, chosen, sorting))];
}

/** A why gives up some of its room, so that on a laptop the list still ends with when. */
const whyBesideNote: RunColumn = { ...because, className: "w-full min-w-20 max-w-0 truncate max-sm:hidden" };

function withNote(columns: readonly RunColumn[]): readonly RunColumn[] {
  const after = columns.indexOf(jobOnly) + 1;
  const rest = columns.slice(after).map((column) => (column === whyFirst ? whyBesideNote : column));
  return [...columns.slice(0, after), note, ...rest];
}

/** Characters that nobody sees, or that turn text around, are shown as their codes. */
function shownText(text: string): string {
  return escapePieces(text.replace(/\s+/g, " "))
    .map((piece) => piece.text)
    .join("");
}

/** Beside many columns: some words of why, the rest in its title. */
const narrow: RunColumn = { ...because, className: "min-w-32 max-w-64 truncate max-sm:hidden" };

function chosenColumn(name: string, rows: readonly RunSummary[]): RunColumn {
  const own = OWN[name];
  if (own === note) return { ...note, className: "max-w-96 truncate" };
  if (own && name !== "state") return { ...own, id: name, className: undefined as unknown as string };
  return {
    id: name,
    header: <code className="text-xs">{name}</code>,
    cell: (run) => <FieldValue name={name} value={run.fields?.[name]} />,
    ...(isNumeric(name, rows) && { align: "right" }),
    className: "max-w-56 truncate",
  };
}

function isNumeric(name: string, rows: readonly RunSummary[]): boolean {
  return rows.some((run) => isUserNumber(run.fields?.[name]));
}

function FieldValue({ name, value }: { name: string; value: UserNumber | string | undefined }) {
  if (value === undefined) return <span className="text-muted">–</span>;
  if ((name === "duration" || name === "total_duration") && typeof value === "number")
    return formatDuration(value);
  if (isUserNumber(value)) return <span title={String(value)}>{formatValue(value)}</span>;
  if (value === "NaN" || value === "Infinity" || value === "-Infinity")
    return <span className="text-warn">{value}</span>;
  const isTime = ["started", "ended", "starred", "archived"].includes(name);
  return <span title={value}>{isTime ? formatUtc(value) : value}</span>;
}

function sortable(column: RunColumn, chosen: readonly string[], { sort, onSort }: Sorting): RunColumn {
  const name = chosen.includes(column.id) ? column.id : SORTS[column.id];
  if (!name) return column;
  const direction =
    sort === name ? "ascending" : sort === `-${name}` || (!sort && name === "created") ? "descending" : null;
  return {
    ...column,
    header: (
      <button
        aria-description={`Sort by ${name}${direction ? `, now ${direction}` : ""}`}
        className={classNames(
          "inline-flex items-center gap-1 hover:text-text",
          // Heading and numbers end at the same place: the arrow's room is before it.
          column.align === "right" && "flex-row-reverse",
          direction && "text-text",
        )}
        onClick={() => onSort(name)}
        type="button"
      >
        {column.header}
        <span aria-hidden="true" className={classNames("w-2 text-2xs", !direction && "invisible")}>
          {direction === "ascending" ? "↑" : "↓"}
        </span>
      </button>
    ),
  };
}

function selectColumn(selection: Selection, order: readonly string[]): RunColumn {
  const some = order.some((id) => selection.ids.has(id));
  const every = selection.all || (some && order.every((id) => selection.ids.has(id)));
  return {
    id: "select",
    className: "w-8",
    header: (
      <input
        aria-label="Choose all rows shown"
        checked={every}
        className="block accent-accent"
        onChange={() => selection.toggleShown(order)}
        ref={(box) => {
          if (box) box.indeterminate = some && !every;
        }}
        type="checkbox"
      />
    ),
    cell: (run) => (
      <span className="flex items-center gap-1.5">
        <input
          aria-label={`Choose ${run.job} ${run.id}`}
          checked={selection.all || selection.ids.has(run.id)}
          className="accent-accent"
          onChange={(event) => selection.toggle(run.id, order, (event.nativeEvent as MouseEvent).shiftKey)}
          type="checkbox"
        />
        {run.starred && (
          <span className="text-warn" title="Starred">
            <Icon name="star" size={12} />
            <span className="sr-only">starred</span>
          </span>
        )}
      </span>
    ),
  };
}
