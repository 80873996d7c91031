import { Link, useNavigate } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import type { JsonValue } from "@/api/schema";
import type { Outcome, Outcomes } from "@/components/outcomes/best";
import { flawOf } from "@/components/runs/run-facts";
import { type Column, DataTable } from "@/components/ui/data-table";
import { LineText } from "@/components/ui/line-text";
import { StateBadge } from "@/components/ui/state-badge";
import { formatDuration, formatValue, shortId } from "@/lib/format";
import { exactText, isUserNumber, type UserNumber } from "@/lib/wire-numbers";

/** A row for each run; a press on a heading sorts by it, the best of a metric first. */
export function OutcomeTable({ outcomes, sort }: { outcomes: Outcomes; sort: string }) {
  const { parameters, metrics } = outcomes;
  const columns = useMemo<readonly Column<Outcome>[]>(
    () => [
      {
        id: "run",
        header: <Sorter first="index" label="Run" sort={sort} />,
        cell: (row) => (
          <Link className="hover:underline" params={{ runId: row.run }} to="/runs/$runId/metrics">
            {row.index} <code className="text-muted">{shortId(row.run)}</code>
          </Link>
        ),
      },
      {
        id: "state",
        header: <Sorter first="state" label="State" sort={sort} />,
        cell: (row) => <StateBadge flaw={flawOf(row)} state={row.state} />,
      },
      ...parameters.map((name) => ({
        id: `parameter.${name}`,
        header: <Sorter first={`parameters.${name}`} label={name} sort={sort} />,
        cell: (row: Outcome) => (
          <Value byDefault={row.given?.includes(name) === false} value={row.parameters[name]} />
        ),
        align: "right" as const,
      })),
      ...metrics.map(({ name, better }) => ({
        id: `metric.${name}`,
        header: (
          <Sorter
            first={better === "higher" ? `-metrics.${name}` : `metrics.${name}`}
            label={name}
            sort={sort}
          />
        ),
        cell: (row: Outcome) => <Reached odd={row.not_finite?.[name]} value={row.metrics[name]} />,
        align: "right" as const,
      })),
      {
        id: "duration",
        header: <Sorter first="duration" label="Duration" sort={sort} />,
        cell: (row) => (row.duration_s === null ? <Dash /> : formatDuration(row.duration_s)),
        align: "right",
      },
    ],
    [parameters, metrics, sort],
  );
  return (
    <DataTable columns={columns} keyboard label="Outcomes" rowKey={(row) => row.run} rows={outcomes.items} />
  );
}

/** A heading that sorts: `first` at the first press, turned at the second. */
function Sorter({ label, first, sort }: { label: string; first: string; sort: string }): ReactNode {
  const navigate = useNavigate({ from: "/batches/$batchId" });
  const turned = first.startsWith("-") ? first.slice(1) : `-${first}`;
  const on = sort === first || sort === turned;
  const next = sort === first ? turned : first;
  return (
    <button
      aria-label={`Sort by ${label}`}
      aria-pressed={on}
      className="inline-flex min-h-6 items-center gap-1 whitespace-nowrap hover:text-text aria-pressed:text-text"
      onClick={() => void navigate({ search: (old) => ({ ...old, sort: next }), replace: true })}
      type="button"
    >
      <LineText text={label} />
      {on && <span aria-hidden="true">{sort.startsWith("-") ? "↓" : "↑"}</span>}
    </button>
  );
}

function Value({ value, byDefault = false }: { value: JsonValue | undefined; byDefault?: boolean }) {
  if (value === undefined) return <Dash />;
  if (byDefault) {
    return (
      <span className="text-muted">
        <span className="mr-1 text-xs">default</span>
        <Value value={value} />
      </span>
    );
  }
  if (isUserNumber(value)) return exactText(value);
  const text = typeof value === "string" ? value : exactText(value);
  return (
    <code className="inline-block max-w-48 truncate align-middle" title={text}>
      {text}
    </code>
  );
}

/** A number, one that is none as what it is; a dash where there is nothing. */
function Reached({ value, odd }: { value: UserNumber | undefined; odd: string | undefined }) {
  if (value !== undefined) return <span title={exactText(value)}>{formatValue(value)}</span>;
  return odd === undefined ? <Dash /> : <span className="text-warn">{odd}</span>;
}

function Dash() {
  return <span className="text-muted">–</span>;
}
