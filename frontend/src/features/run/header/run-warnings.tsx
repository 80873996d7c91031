import type { Run } from "@/api/schema";
import { Icon } from "@/components/ui/icons";

/** What the user may not have meant, of a run that has not ended. */
export function RunWarnings({ run: { warnings } }: { run: Pick<Run, "warnings"> }) {
  return warnings.map(({ code, message }) => (
    <p className="flex max-w-3xl gap-2 bg-warn-soft px-3 py-1.5" key={code} role="note">
      <span className="mt-0.5 text-warn">
        <Icon name="warning" size={14} />
      </span>
      <span className="min-w-0 break-words">{message}</span>
    </p>
  ));
}
