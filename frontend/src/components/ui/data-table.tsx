import { createColumnHelper, tableFeatures, useTable } from "@tanstack/react-table";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useMemo, useRef } from "react";
import { classNames } from "@/lib/class-names";
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
/** Below this many rows all are in the document, and the browser's own find sees them. */
const VIRTUAL_FROM = 150;
const features = tableFeatures({});

/** Rows and columns of plain text values; the one place that knows the table library. */
export function DataTable<Row extends object>(props: DataTableProps<Row>) {
  const { label, columns, rows, rowKey, selected, onRowClick, keyboard = false, twoLines = false } = props;
  const rowPx = twoLines && window.matchMedia(PHONE).matches ? PHONE_ROW_PX : ROW_PX;
  const body = useRef<HTMLTableSectionElement>(null);
  const definitions = useMemo(() => {
    const helper = createColumnHelper<typeof features, Row>();
    return columns.map((column) =>
      helper.display({
        id: column.id,
        header: () => column.header,
        cell: ({ row }) => column.cell(row.original),
      }),
    );
  }, [columns]);
  const table = useTable({ features, columns: definitions, data: rows as Row[], getRowId: rowKey });
  const all = table.getRowModel().rows;
  const virtual = useWindowVirtualizer({
    count: all.length,
    enabled: all.length > VIRTUAL_FROM,
    estimateSize: () => rowPx,
    overscan: 20,
    scrollMargin: body.current?.offsetTop ?? 0,
  });
  const windowed = all.length > VIRTUAL_FROM ? virtual.getVirtualItems() : null;
  const shown = windowed ? windowed.map(({ index }) => all[index]) : all;
  const first = windowed?.[0]?.index ?? 0;
  const before = first * rowPx;
  const after = (all.length - first - shown.length) * rowPx;
  useRowKeys(body, {
    enabled: keyboard,
    count: all.length,
    reveal: (index) => windowed && virtual.scrollToIndex(index),
  });

  const look = new Map(columns.map((column) => [column.id, column]));
  const cellClass = (id: string) =>
    classNames(look.get(id)?.align === "right" && "text-right", look.get(id)?.className);
  return (
    <ScrollBox>
      <table aria-label={label} aria-rowcount={all.length + 1} className="w-full border-collapse">
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id}>
              {group.headers.map((header) => (
                <th
                  className={classNames(
                    "h-8 whitespace-nowrap border-line border-b px-2.5 text-left font-normal text-muted text-xs first:pl-0 last:pr-0",
                    cellClass(header.column.id),
                  )}
                  key={header.id}
                  scope="col"
                >
                  <table.FlexRender header={header} />
                </th>
              ))}
            </tr>
          ))}
        </thead>
        <tbody ref={body}>
          {before > 0 && <Spacer height={before} span={columns.length} />}
          {shown.map(
            (row, position) =>
              row && (
                <tr
                  aria-rowindex={first + position + 2}
                  className="border-line border-b focus-within:bg-hover hover:bg-hover data-selected:bg-accent-soft"
                  data-index={first + position}
                  data-selected={row.id === selected || undefined}
                  key={row.id}
                  onClick={onRowClick && ((event) => !isControl(event.target) && onRowClick(row.original))}
                >
                  {row.getAllCells().map((cell) => (
                    <td
                      className={classNames(
                        "h-8 whitespace-nowrap px-2.5 first:pl-0 last:pr-0",
                        twoLines && "max-sm:h-[46px] max-sm:py-0",
                        cellClass(cell.column.id),
                      )}
                      key={cell.id}
                    >
                      <table.FlexRender cell={cell} />
                    </td>
                  ))}
                </tr>
              ),
          )}
          {after > 0 && <Spacer height={after} span={columns.length} />}
        </tbody>
      </table>
    </ScrollBox>
  );
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
