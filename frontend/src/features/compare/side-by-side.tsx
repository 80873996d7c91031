import { Fragment, memo, type ReactNode, useMemo } from "react";
import { LineMark } from "@/components/charts/line-mark";
import { LineText } from "@/components/ui/line-text";
import { ScrollBox } from "@/components/ui/scroll-box";
import { Section } from "@/components/ui/section";
import { classNames } from "@/lib/class-names";
import { count } from "@/lib/format";
import { useNow } from "@/lib/now";
import type { Compared } from "./model";
import { type Row, rowsOf } from "./table";

/** More columns are no table: the runs page and a sweep's own list hold all. */
const MOST_COLUMNS = 30;

interface SideBySideProps {
  compared: readonly Compared[];
  same: boolean;
  aside: ReactNode;
}

/** Parameters, results and configuration of the runs beside each other: what differs first. */
export function SideBySide({ compared, same, aside }: SideBySideProps) {
  const shown = useMemo(() => compared.filter(({ run, drawn, base }) => run && (drawn || base)), [compared]);
  // The base is the first column, to which all others are held.
  const columns = useMemo(
    () => [...shown].sort((a, b) => Number(b.base) - Number(a.base)).slice(0, MOST_COLUMNS),
    [shown],
  );
  // Only what a run has taken so far changes with time.
  const present = useNow();
  const now = columns.some(({ run }) => run?.started_at && !run.ended_at) ? present : 0;
  const rows = useMemo(
    () =>
      rowsOf(
        columns.flatMap(({ run }) => run ?? []),
        now,
      ),
    [columns, now],
  );
  const listed = useMemo(() => (same ? rows : rows.filter(({ differs }) => differs)), [rows, same]);
  const alike = rows.filter(({ differs }) => !differs).length;
  const note = [
    columns.length < shown.length && `${columns.length} of ${count(shown.length, "run")}`,
    !same && alike > 0 && `${count(alike, "row")} alike in all are folded`,
  ];
  return (
    <Section aside={aside} note={note.filter(Boolean).join("; ")} title="Side by side">
      <Matrix columns={columns} label="Runs side by side" rows={listed} />
    </Section>
  );
}

interface MatrixProps {
  label: string;
  columns: readonly Compared[];
  rows: readonly Row[];
}

const Matrix = memo(function Matrix({ label, columns, rows }: MatrixProps) {
  const sections = [...new Set(rows.map(({ section }) => section))];
  if (rows.length === 0) return <p className="pt-3 text-muted">Nothing differs.</p>;
  return (
    <ScrollBox className="pt-2">
      <table aria-label={label} className="border-collapse">
        <thead>
          <tr>
            <td className="sticky left-0 bg-bg" />
            {columns.map(({ id, label: name, style, base }) => (
              <th
                className="h-8 max-w-48 px-2.5 text-left font-normal text-xs"
                key={id}
                scope="col"
                title={name}
              >
                <span className="flex items-center gap-1.5">
                  <LineMark style={style} />
                  <span className="truncate">{name}</span>
                  {base && <span className="text-accent">base</span>}
                </span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {sections.map((section) => (
            <Fragment key={section}>
              <tr>
                <th className="sticky left-0 h-7 bg-bg pt-2 text-left text-xs" scope="rowgroup">
                  {section}
                </th>
              </tr>
              {rows
                .filter((row) => row.section === section)
                .map((row) => (
                  <MatrixRow key={row.name} row={row} />
                ))}
            </Fragment>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
});

function MatrixRow({ row }: { row: Row }) {
  const [base] = row.whole;
  return (
    <tr
      className="border-line border-b hover:bg-hover"
      data-differs={row.differs || undefined}
      data-row={row.name}
    >
      <th
        className="sticky left-0 h-7 max-w-56 truncate bg-bg pr-4 text-left font-normal text-muted"
        scope="row"
        title={row.name}
      >
        <LineText text={row.name} />
      </th>
      {row.values.map((value, at) => (
        <td
          className={classNames(
            "max-w-48 truncate px-2.5",
            at > 0 && row.whole[at] !== base && "bg-accent-soft",
          )}
          // biome-ignore lint/suspicious/noArrayIndexKey: a column is its place
          key={at}
          title={row.whole[at]}
        >
          {value === undefined ? <span className="text-muted">–</span> : <LineText text={value} />}
          {row.byDefault?.[at] && <span className="ml-1 text-muted text-xs">default</span>}
        </td>
      ))}
    </tr>
  );
}
