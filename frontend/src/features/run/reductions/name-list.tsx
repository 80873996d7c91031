import { useState } from "react";
import type { ReductionName } from "@/api/schema";
import { formatInteger } from "@/lib/format";
import { nameKey } from "./names";
import { axisLabel } from "./view-model";

/** A filter appears where the list is longer than this. */
const MANY = 12;
const MOST_SHOWN = 200;

interface NameListProps {
  names: readonly ReductionName[];
  chosen: string;
  onChoose: (name: ReductionName) => void;
}

/** Every reduction of the run, to choose one. */
export function NameList({ names, chosen, onChoose }: NameListProps) {
  const [filter, setFilter] = useState("");
  const matching = names.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase()));
  return (
    <nav aria-label="Recorded reductions" className="min-w-0">
      <p className="mb-1 text-muted text-xs">{formatInteger(names.length)} recorded</p>
      {names.length > MANY && (
        <input
          aria-label="Filter by name"
          className="mb-2 h-7 w-full rounded-control border border-line-strong bg-bg px-2 text-xs"
          onChange={(event) => setFilter(event.target.value)}
          placeholder="Filter by name"
          type="search"
          value={filter}
        />
      )}
      <ul className="max-h-[60vh] overflow-y-auto border-line border-t max-lg:max-h-40">
        {matching.slice(0, MOST_SHOWN).map((name) => (
          <li key={`${nameKey(name)} ${name.op} ${axisLabel(name.axis)}`}>
            <button
              aria-current={nameKey(name) === chosen || undefined}
              className="w-full border-line border-b px-2 py-1.5 text-left hover:bg-hover aria-current:bg-accent-soft"
              data-testid="reduction-name"
              onClick={() => onChoose(name)}
              type="button"
            >
              <span className="wrap-anywhere line-clamp-4 font-mono text-xs" title={name.name}>
                {name.name}
              </span>
              <span className="block text-2xs text-muted">
                {name.op.toUpperCase()} {axisLabel(name.axis)}
                {name.origin === "in_step" && ", in the step"}
              </span>
            </button>
          </li>
        ))}
      </ul>
      {matching.length === 0 && <p className="py-2 text-muted text-xs">No name contains this text.</p>}
      {matching.length > MOST_SHOWN && (
        <p className="py-2 text-muted text-xs">
          First {MOST_SHOWN} of {formatInteger(matching.length)}; filter to see others.
        </p>
      )}
    </nav>
  );
}
