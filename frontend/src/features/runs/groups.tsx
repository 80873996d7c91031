import { useQuery } from "@tanstack/react-query";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { count } from "@/lib/format";
import { groupsQuery } from "./queries";

interface GroupsProps {
  by: string;
  where: string;
  archived: boolean;
  /** The condition that leaves only one of them. */
  onOpen: (condition: string) => void;
}

/** The matching runs by the value of a field, as bars; one opens as a filter. */
export function Groups({ by, where, archived, onOpen }: GroupsProps) {
  const groups = useQuery(groupsQuery(by, where, archived));
  if (groups.error) {
    return (
      <ErrorState
        error={groups.error}
        onRetry={() => void groups.refetch()}
        what="The runs could not be grouped"
      />
    );
  }
  if (!groups.data) return <SkeletonRows label="groups" rows={8} />;
  const { items, others } = groups.data;
  const most = Math.max(1, ...items.map(({ runs }) => runs));
  return (
    <table aria-label={`Runs by ${by}`} className="w-full max-w-3xl border-collapse">
      <thead>
        <tr className="border-line border-b text-left text-muted text-xs">
          <th className="h-8 pr-4 font-normal" scope="col">
            <code>{by}</code>
          </th>
          <th className="px-2.5 text-right font-normal" scope="col">
            Runs
          </th>
          <th className="w-1/2 font-normal" scope="col">
            <span className="sr-only">Share</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {items.map((group) => (
          <tr className="border-line border-b hover:bg-hover" key={group.where}>
            <td className="h-8 max-w-80 truncate pr-4">
              <button
                className="hover:underline"
                onClick={() => onOpen(group.where)}
                title={group.where}
                type="button"
              >
                {group.value === null ? <span className="text-muted">has none</span> : String(group.value)}
              </button>
            </td>
            <td className="px-2.5 text-right tabular-nums">{group.runs.toLocaleString("en")}</td>
            <td>
              <div className="h-2 bg-accent" style={{ width: `${(100 * group.runs) / most}%` }} />
            </td>
          </tr>
        ))}
      </tbody>
      {others > 0 && (
        <tfoot>
          <tr>
            <td className="h-8 text-muted" colSpan={3}>
              {count(others, "run")} in smaller groups
            </td>
          </tr>
        </tfoot>
      )}
    </table>
  );
}
