import { memo, useMemo, useState } from "react";
import { Button } from "@/components/ui/button";
import { useAtRest } from "@/lib/idle";

/** Parallel columns over x; `null` where there is nothing to draw: no line and no band goes across it. */
export interface TimeChartColumns {
  x: number[];
  mean: (number | null)[];
  min: (number | null)[];
  max: (number | null)[];
  /** The value at `x` itself; the line is drawn through the means. */
  last: (number | null)[];
  /** What stands at `x` where that is no number to draw: `NaN`, `Infinity`, `12 values lost`. */
  odd: (string | null)[];
  count: number[];
}

interface ChartTableProps {
  title: string;
  xName: string;
  lines: readonly { label: string; columns: TimeChartColumns }[];
  formatX: (value: number) => string;
}

const PAGE = 50;

/**
 * The chart's numbers for screen readers, page by page; in sight while the keyboard is in it. It follows the chart when the
 * browser is idle: tables of a page of charts take longer than the charts themselves.
 */
export const ChartTable = memo(function ChartTable({ formatX, lines, ...names }: ChartTableProps) {
  const numbers = useMemo(() => ({ formatX, lines }), [formatX, lines]);
  const held = useAtRest(numbers);
  return held ? <Pages {...names} {...held} /> : null;
});

const Pages = memo(function Pages({ title, xName, lines, formatX }: ChartTableProps) {
  const [page, setPage] = useState(0);
  const total = lines.reduce((sum, { columns }) => sum + columns.x.length, 0);
  const pages = Math.max(1, Math.ceil(total / PAGE));
  const shown = Math.min(page, pages - 1);
  const rows = rowsOf(lines, shown * PAGE, PAGE);
  return (
    <div className="sr-only focus-within:not-sr-only focus-within:max-h-64 focus-within:overflow-auto focus-within:py-2">
      <table>
        <caption>
          {title}
          {pages > 1 ? `, page ${shown + 1} of ${pages}` : ""}
        </caption>
        <thead>
          <tr>
            {lines.length > 1 && <th scope="col">line</th>}
            {[xName, "mean", "min", "max"].map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ label, columns, at }) => (
            <tr key={`${label} ${at}`}>
              {lines.length > 1 && <td>{label}</td>}
              <td>{formatX(columns.x[at] ?? 0)}</td>
              <td>{textOf(columns.mean[at], columns.odd[at])}</td>
              <td>{boundText(columns.min[at], columns, at)}</td>
              <td>{boundText(columns.max[at], columns, at)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {pages > 1 && (
        <p>
          <Button compact disabled={shown === 0} onClick={() => setPage(shown - 1)}>
            Earlier rows of {title}
          </Button>
          <Button compact disabled={shown === pages - 1} onClick={() => setPage(shown + 1)}>
            Further rows of {title}
          </Button>
        </p>
      )}
    </div>
  );
});

function rowsOf(lines: ChartTableProps["lines"], first: number, most: number) {
  const rows: { label: string; columns: TimeChartColumns; at: number }[] = [];
  let before = 0;
  for (const { label, columns } of lines) {
    const start = Math.max(0, first - before);
    for (let at = start; at < columns.x.length && rows.length < most; at += 1)
      rows.push({ label, columns, at });
    before += columns.x.length;
    if (rows.length === most) break;
  }
  return rows;
}

/** A bound of a bucket; of a line whose mean alone is drawn it was not asked for. */
function boundText(bound: number | null | undefined, { mean, odd }: TimeChartColumns, at: number): string {
  return bound === null && typeof mean[at] === "number" ? "–" : textOf(bound, odd[at]);
}

/** A number without the noise of its binary form. */
export function textOf(value: number | null | undefined, odd: string | null | undefined): string {
  return typeof value === "number" ? String(Number(value.toPrecision(12))) : (odd ?? "not finite");
}
