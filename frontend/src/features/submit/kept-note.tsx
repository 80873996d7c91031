import type { Draft } from "./draft";
import { keptOf } from "./kept";

interface KeptNoteProps {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
}

/** What is submitted as the run or version before had it, though no field shows it. */
export function KeptNote({ draft, change }: KeptNoteProps) {
  const kept = keptOf(draft);
  if (kept.length === 0) return null;
  const { parameters = {} } = draft.origin;
  return (
    <p className="break-words text-muted text-xs">
      Kept from before, beside these fields: <code>{kept.join(", ")}</code>{" "}
      <button className="link min-h-6 px-1" onClick={() => change({ origin: { parameters } })} type="button">
        Use the defaults
      </button>
    </p>
  );
}
