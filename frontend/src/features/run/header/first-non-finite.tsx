import { Link } from "@tanstack/react-router";
import type { Run } from "@/api/schema";
import { kindOf, replicasOf } from "@/components/runs/run-facts";
import { Icon } from "@/components/ui/icons";
import { formatInteger } from "@/lib/format";

/** The exact place where numbers stopped being finite: step, variable, replica. Nothing where they are. */
export function FirstNonFinite({ run }: { run: Pick<Run, "id" | "first_non_finite"> }) {
  const first = run.first_non_finite;
  if (!first) return null;
  return (
    <p className="flex max-w-3xl gap-2 bg-warn-soft px-3 py-1.5" data-testid="first-non-finite" role="note">
      <span className="mt-0.5 text-warn">
        <Icon name="warning" size={14} />
      </span>
      <span className="min-w-0 break-words">
        First {kindOf(first)} at step {formatInteger(first.step)} in the {first.op} of{" "}
        <code>{first.name}</code>
        {first.replicas_in_all > 0
          ? `: ${replicasOf(first)} put it in.`
          : ": every replica put in finite numbers, and their sum was too large."}{" "}
        <Link
          className="link"
          params={{ runId: run.id }}
          search={{ var: first.name, near: first.step, attempt: first.attempt }}
          to="/runs/$runId/reductions"
        >
          Reductions of it
        </Link>
      </span>
    </p>
  );
}
