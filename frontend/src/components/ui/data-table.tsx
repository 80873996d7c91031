import { lazy, type ReactNode, Suspense, useRef, useState } from "react";
import { classNames } from "@/lib/class-names";
import type { Shown } from "./row-window";
import { ScrollBox } from "./scroll-box";
import { useRowKeys } from "./use-row-keys";

export interface Column<Row> {
  id: string;
  header: ReactNode;
  cell: (row: Row) => ReactNode;
  /** Numbers stand at the right. */
  align?: "right";
  /** Widths and what is hidden on narrow screens. */
  className?: string;
}

interface DataTableProps<Row extends object> {
  /** What the table lists, for a screen reader. */
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  /** The row whose details are open. */
  selected?: string | undefined;
  /** A click beside the row's link. */
  onRowClick?: (row: Row) => void;
  /** `j` and `k` move over the rows' links. */
  keyboard?: boolean;
  /** Its rows have a second line on a phone. */
  twoLines?: boolean;
}

const ROW_PX = 32;
/** Rows of two lines, on screens too narrow for all columns. */
const PHONE = "(max-width: 639px)";
const PHONE_ROW_PX = 46;
/** Up to this many rows all are in the document, and the browser's own find sees them. */
const ALL_UP_TO = 150;
/** What only long lists need is no part of the first page. */
const RowWindow = lazy(() => import("./row-window"));

/** Rows and columns of plain values; of a long list only the rows near the screen are in the document. */
export function DataTable<Row extends object>(props: DataTableProps<Row>) {
  const { label, columns, rows, rowKey, keyboard = false, twoLines = false } = props;
  const rowPx = twoLines && window.matchMedia(PHONE).matches ? PHONE_ROW_PX : ROW_PX;
  const body = useRef<HTMLTableSectionElement>(null);
  const reveal = useRef<((index: number) => void) | null>(null);
  const [near, setNear] = useState<Shown>({ first: 0, size: ALL_UP_TO });
  const isLong = rows.length > ALL_UP_TO;
  const first = isLong ? Math.min(near.first, rows.length) : 0;
  const shown = isLong ? rows.slice(first, first + near.size) : rows;
  const after = (rows.length - first - shown.length) * rowPx;
  useRowKeys(body, { enabled: keyboard, count: rows.length, reveal: (index) => reveal.current?.(index) });
  return (
    <ScrollBox>
      {isLong && (
        <Suspense>
          <RowWindow body={body} count={rows.length} onShown={setNear} reveal={reveal} rowPx={rowPx} />
        </Suspense>
      )}
      <table aria-label={label} aria-rowcount={rows.length + 1} className="w-full border-collapse">
        <Heads columns={columns} />
        <tbody ref={body}>
          {first > 0 && <Spacer height={first * rowPx} span={columns.length} />}
          {shown.map((row, position) => (
            <TableRow {...props} index={first + position} key={rowKey(row)} row={row} />
          ))}
          {after > 0 && <Spacer height={after} span={columns.length} />}
        </tbody>
      </table>
    </ScrollBox>
  );
}

function Heads<Row>({ columns }: { columns: readonly Column<Row>[] }) {
  return (
    <thead>
      <tr>
        {columns.map((column) => (
          <th
            className={classNames(
              "h-8 whitespace-nowrap border-line border-b px-2.5 text-left font-normal text-muted text-xs first:pl-0 last:pr-0",
              ofColumn(column),
            )}
            key={column.id}
            scope="col"
          >
            {column.header}
          </th>
        ))}
      </tr>
    </thead>
  );
}

interface TableRowProps<Row extends object> extends DataTableProps<Row> {
  row: Row;
  /** Its place in the whole list. */
  index: number;
}

function TableRow<Row extends object>(props: TableRowProps<Row>) {
  const { row, index, columns, rowKey, selected, onRowClick, twoLines } = props;
  return (
    <tr
      aria-rowindex={index + 2}
      className="border-line border-b focus-within:bg-hover hover:bg-hover data-selected:bg-accent-soft"
      data-index={index}
      data-selected={rowKey(row) === selected || undefined}
      onClick={onRowClick && ((event) => !isControl(event.target) && onRowClick(row))}
    >
      {columns.map((column) => (
        <td
          className={classNames(
            "h-8 whitespace-nowrap px-2.5 first:pl-0 last:pr-0",
            twoLines && "max-sm:h-[46px] max-sm:py-0",
            ofColumn(column),
          )}
          key={column.id}
        >
          {column.cell(row)}
        </td>
      ))}
    </tr>
  );
}

function ofColumn<Row>({ align, className }: Column<Row>): string {
  return classNames(align === "right" && "text-right", className);
}

function Spacer({ height, span }: { height: number; span: number }) {
  return (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: a spacer holds nothing that could be focused
    <tr aria-hidden="true">
      <td colSpan={span} style={{ height }} />
    </tr>
  );
}

function isControl(target: EventTarget): boolean {
  return target instanceof Element && target.closest("a,button,input,select") !== null;
}
