import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Straggler } from "@/api/schema";
import { isTerminal } from "@/api/states";
import { Icon } from "@/components/ui/icons";
import { type SteadyRun, stragglerQuery } from "../queries";

/** The member that costs the others a tenth of each step or more. Nothing where there is none. */
export function StragglerNote({ run }: { run: SteadyRun }) {
  const straggler = useQuery(stragglerQuery(run.id)).data;
  if (!straggler) return null;
  return (
    <p className="flex max-w-3xl gap-2 bg-warn-soft px-3 py-1.5" data-testid="straggler" role="note">
      <span className="mt-0.5 text-warn">
        <Icon name="warning" size={14} />
      </span>
      <span className="min-w-0 break-words">
        {stragglerText(straggler, isTerminal(run.state))}{" "}
        <Link className="link" params={{ runId: run.id }} to="/runs/$runId/placement">
          Arrivals of all members
        </Link>
      </span>
    </p>
  );
}

/** `beta (rank 1) comes last to the collectives: the others wait up to 48 % of a step for it.` */
export function stragglerText(one: Straggler, ended: boolean): string {
  const who = `${one.host_name} (rank ${one.rank})`;
  const share = `up to ${Math.round(one.gain_percent)} % of a step`;
  return ended
    ? `${who} came last to the collectives: the others waited ${share} for it.`
    : `${who} comes last to the collectives: the others wait ${share} for it.`;
}
