import type { Plan } from "@/api/schema";
import { Icon } from "@/components/ui/icons";

/** What the user may not have meant. */
export function Warnings({ plan }: { plan: Plan }) {
  const warnings = [...plan.warnings, ...(plan.program?.warnings ?? [])];
  if (warnings.length === 0) return null;
  return (
    <ul aria-label="Warnings" className="mt-3 space-y-1.5">
      {warnings.map(({ code, message }) => (
        <li className="flex gap-2 bg-warn-soft px-3 py-1.5" key={`${code} ${message}`}>
          <span className="mt-0.5 text-warn">
            <Icon name="warning" size={14} />
          </span>
          <span className="min-w-0 break-words">{message}</span>
        </li>
      ))}
    </ul>
  );
}
