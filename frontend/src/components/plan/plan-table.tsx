import type { ReactNode } from "react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { ScrollBox } from "@/components/ui/scroll-box";
import { classNames } from "@/lib/class-names";
import { formatInteger } from "@/lib/format";

const PAGE = 12;

interface Column {
  head: string;
  right?: boolean;
}

interface PlanTableProps {
  caption: string;
  columns: readonly Column[];
  rows: readonly { key: string; cells: readonly ReactNode[] }[];
}

/** A few aligned columns, the first ones of many rows first. */
export function PlanTable({ caption, columns, rows }: PlanTableProps) {
  const [shown, setShown] = useState(PAGE);
  return (
    <ScrollBox>
      <table className="w-full whitespace-nowrap">
        <caption className="sr-only">{caption}</caption>
        <thead>
          <tr className="border-line border-b text-left text-muted text-xs">
            {columns.map(({ head, right }) => (
              <th className={cell(right, "h-7 font-normal")} key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, shown).map(({ key, cells }) => (
            <tr className="h-8 border-line border-b" key={key}>
              {cells.map((content, i) => (
                <td className={cell(columns[i]?.right)} key={columns[i]?.head}>
                  {content}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {shown < rows.length && (
        <Button className="mt-3" compact onClick={() => setShown(shown + 10 * PAGE)}>
          Show more of {formatInteger(rows.length)}
        </Button>
      )}
    </ScrollBox>
  );
}

function cell(right = false, more = ""): string {
  return classNames("pr-5 last:pr-0", right && "text-right", more);
}
