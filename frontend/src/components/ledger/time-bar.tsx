import type { LedgerLine, Spent } from "@/api/schema";
import { classNames } from "@/lib/class-names";
import { colorOf, labelOf } from "./names";
import { formatShare, formatSpent } from "./shares";

interface TimeBarProps {
  lines: readonly LedgerLine[];
  /** Of which the lines are parts. */
  whole: number;
  of?: "wall_s" | "device_s";
  /** Says for a screen reader what is drawn. */
  label: string;
  /** Names under the parts that have room for them. */
  named?: boolean;
  className?: string;
}

/** One name has room beside the others from this share on. */
const NAMED_FROM = 0.07;

/** Where time went, as one bar whose parts follow each other as they do in a run's life. */
export function TimeBar({ lines, whole, of = "wall_s", label, named = false, className }: TimeBarProps) {
  const parts = lines.filter((line) => line[of] > 0);
  const text = parts.map((line) => `${labelOf(line.name)} ${formatShare(line[of], whole)}`).join(", ");
  return (
    <div className={classNames("min-w-0", className)}>
      <div
        aria-label={`${label}: ${text}`}
        className={classNames("flex w-full overflow-hidden rounded-control", named ? "h-6" : "h-3.5")}
        role="img"
      >
        {parts.map((line) => (
          <span
            className="h-full border-bg not-first:border-l"
            key={line.name}
            style={{ width: `${(100 * line[of]) / whole}%`, background: colorOf(line.name) }}
            title={`${labelOf(line.name)}: ${formatSpent(line[of])}, ${formatShare(line[of], whole)}`}
          />
        ))}
      </div>
      {named && (
        <div aria-hidden className="flex w-full pt-1 text-2xs text-muted max-sm:hidden">
          {parts.map((line) => (
            <span className="truncate pr-1" key={line.name} style={{ width: `${(100 * line[of]) / whole}%` }}>
              {line[of] >= NAMED_FROM * whole && labelOf(line.name)}
            </span>
          ))}
        </div>
      )}
    </div>
  );
}

/** The colour of a name, beside it. */
export function Swatch({ name }: { name: Spent }) {
  return (
    <span aria-hidden className="size-2.5 shrink-0 rounded-[2px]" style={{ background: colorOf(name) }} />
  );
}

/** What the colours of several bars mean. */
export function Legend({ names, className }: { names: readonly Spent[]; className?: string }) {
  return (
    <ul className={classNames("flex flex-wrap gap-x-4 gap-y-1 text-muted text-xs", className)}>
      {names.map((name) => (
        <li className="inline-flex items-center gap-1.5" key={name}>
          <Swatch name={name} />
          {labelOf(name)}
        </li>
      ))}
    </ul>
  );
}
