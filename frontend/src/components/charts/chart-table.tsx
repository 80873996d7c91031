const MOST_ROWS = 100;

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
  columns: TimeChartColumns;
  formatX: (value: number) => string;
}

/** The chart's numbers for screen readers: evenly thinned to 100 rows. */
export function ChartTable({ title, xName, columns, formatX }: ChartTableProps) {
  const every = Math.max(1, Math.ceil(columns.x.length / MOST_ROWS));
  const rows = columns.x.map((_, at) => at).filter((at) => at % every === 0 || at === columns.x.length - 1);
  return (
    <div className="sr-only">
      <table>
        <caption>
          {title}
          {every > 1 ? `, one of ${every} points` : ""}
        </caption>
        <thead>
          <tr>
            <th scope="col">{xName}</th>
            <th scope="col">mean</th>
            <th scope="col">min</th>
            <th scope="col">max</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((at) => (
            <tr key={at}>
              <td>{formatX(columns.x[at] ?? 0)}</td>
              <td>{textOf(columns.mean[at], columns.odd[at])}</td>
              <td>{textOf(columns.min[at], columns.odd[at])}</td>
              <td>{textOf(columns.max[at], columns.odd[at])}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A number without the noise of its binary form. */
function textOf(value: number | null | undefined, odd: string | null | undefined): string {
  return typeof value === "number" ? String(Number(value.toPrecision(12))) : (odd ?? "not finite");
}
