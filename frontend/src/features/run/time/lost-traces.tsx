import type { Gap } from "@/api/schema";
import { formatInteger } from "@/lib/format";

const MOST = 5;

/** Which steps they were, and why nobody can look at them. */
export function LostTraces({ lost }: { lost: readonly Gap[] }) {
  const told = lost.filter(({ detail }) => detail);
  if (told.length === 0) return null;
  return (
    <ul aria-label="Lost traces" className="mb-4 space-y-1 text-muted text-xs">
      {told.slice(0, MOST).map(({ id, detail }) => (
        <li className="break-words" key={id}>
          Lost: {detail}.
        </li>
      ))}
      {told.length > MOST && <li>And {formatInteger(told.length - MOST)} more.</li>}
    </ul>
  );
}
