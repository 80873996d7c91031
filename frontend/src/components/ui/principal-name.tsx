import type { PrincipalRef } from "@/api/schema";
import { LineText } from "./line-text";

/** Who did something, under the name of then; the id of the token or session where one points at it. */
export function PrincipalName({ who }: { who: PrincipalRef | undefined }) {
  if (!who?.name)
    return (
      <span className="text-muted" title={who?.id ?? "Nobody wrote down who it was."}>
        unknown
      </span>
    );
  return (
    <span
      className="inline-block max-w-36 truncate align-bottom"
      title={`${who.name} ${who.id ?? ""}`.trim()}
    >
      <LineText text={who.name} />
    </span>
  );
}
