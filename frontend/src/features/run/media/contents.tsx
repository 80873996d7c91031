import type { TableValue } from "@/api/schema";
import { LineText } from "@/components/ui/line-text";
import { ScrollBox } from "@/components/ui/scroll-box";
import { classNames } from "@/lib/class-names";
import { formatInteger } from "@/lib/format";

const MOST_LINES = 500;
const MOST_ROWS = 100;

/** A text as text, whatever it holds. */
export function LoggedText({ text }: { text: string }) {
  const lines = text.split("\n");
  return (
    <div className="max-h-72 overflow-y-auto rounded-panel border border-line bg-surface px-3 py-2 text-sm">
      {lines.slice(0, MOST_LINES).map((line, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: lines never move
        <p className="wrap-anywhere min-h-5 whitespace-pre-wrap" key={at}>
          <LineText text={line} />
        </p>
      ))}
      {lines.length > MOST_LINES && (
        <p className="text-muted">{formatInteger(lines.length - MOST_LINES)} more lines</p>
      )}
    </div>
  );
}

/** A table with its cells as text; numbers at the right, those that JSON does not have by their names. */
export function LoggedTable({ name, table }: { name: string; table: TableValue }) {
  const odd = new Map(table.not_finite?.map(({ row, column, value }) => [`${row} ${column}`, value]));
  return (
    <>
      <ScrollBox>
        <table aria-label={name} className="text-xs">
          <thead>
            <tr>
              {table.columns.map((column, at) => (
                <th
                  className={classNames(
                    "border-line border-b px-3 py-1 font-strong",
                    isNumeric(table, at) ? "text-right" : "text-left",
                  )}
                  // biome-ignore lint/suspicious/noArrayIndexKey: columns never move
                  key={at}
                  scope="col"
                >
                  <LineText text={column} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {table.rows.slice(0, MOST_ROWS).map((row, y) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: rows never move
              <tr className="border-line border-b" key={y}>
                {row.map((cell, x) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: cells never move
                  <Cell cell={odd.get(`${y} ${x}`) ?? cell} isOdd={odd.has(`${y} ${x}`)} key={x} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollBox>
      {table.rows.length > MOST_ROWS && (
        <p className="pt-1 text-muted text-xs">
          First {MOST_ROWS} of {formatInteger(table.rows.length)} rows; run.media() reads them all.
        </p>
      )}
    </>
  );
}

/** Whether its first cell that is not None is a number. */
function isNumeric(table: TableValue, column: number): boolean {
  return typeof table.rows.find((row) => row[column] !== null)?.[column] === "number";
}

function Cell({ cell, isOdd }: { cell: string | number | boolean | null; isOdd: boolean }) {
  if (cell === null) return <td className="px-3 py-1 text-muted">None</td>;
  if (isOdd) return <td className="px-3 py-1 text-right text-warn">{String(cell)}</td>;
  if (typeof cell === "number") return <td className="px-3 py-1 text-right tabular-nums">{String(cell)}</td>;
  return (
    <td className="wrap-anywhere max-w-md px-3 py-1">
      <LineText text={String(cell)} />
    </td>
  );
}
