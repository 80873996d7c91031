import { useEffect, useRef } from "react";
import { isApiError } from "@/api/errors";
import type { Plan } from "@/api/schema";
import { Chips } from "@/components/plan/chips";
import { Waiting } from "@/components/runs/waiting";
import { Button } from "@/components/ui/button";
import { Section } from "@/components/ui/section";
import { ErrorState, Skeleton } from "@/components/ui/view-states";
import { count } from "@/lib/format";
import { Batches } from "./batches";
import { Collectives } from "./collectives";
import { Memory } from "./memory";
import { PlacementMap } from "./placement-map";
import { ProbeNote } from "./probe-note";
import { isPending, type PlanOrder } from "./use-plan";
import { PlannedVariables } from "./variables";
import { Warnings } from "./warnings";

interface PlanPaneProps {
  /** The order that the plan answers. */
  of: PlanOrder;
  plan: Plan | undefined;
  ordering: boolean;
  error: unknown;
  /** The form was changed since. */
  stale: boolean;
  onAgain: () => void;
  /** Ends the look at the program; what is known stays. */
  onStop: () => void;
  stopping: boolean;
  stopError: unknown;
}

/** What would happen: where the replicas sit at once, and what the program does as soon as a worker has looked. */
export function PlanPane({ of, ...answer }: PlanPaneProps) {
  const pane = useRef<HTMLDivElement>(null);
  // It stands below the form: each order brings it into sight, and it is tall enough for that while it is empty.
  useEffect(() => {
    if (of) pane.current?.scrollIntoView({ block: "start" });
  }, [of]);
  return (
    <div className="min-h-[calc(100dvh-120px)] scroll-mt-16 px-4 pb-8 lg:px-6" ref={pane}>
      <Answer {...answer} />
    </div>
  );
}

function Answer({ plan, ordering, error, stale, onAgain, ...stop }: Omit<PlanPaneProps, "of">) {
  const actions = (
    <div className="flex gap-2">
      {plan && isPending(plan) && (
        <Button compact disabled={stop.stopping} onClick={stop.onStop}>
          {stop.stopping ? "Cancelling" : "Cancel plan"}
        </Button>
      )}
      <Button compact disabled={ordering} onClick={onAgain}>
        Plan again
      </Button>
    </div>
  );
  if (error && !plan) return <ErrorState error={error} onRetry={onAgain} what="The run can’t be planned" />;
  if (!plan) {
    return (
      <Section title="Plan">
        <div aria-busy="true" className="space-y-3 pt-4" role="status">
          <span className="sr-only">Planning</span>
          <Skeleton className="w-72" />
          <Skeleton className="w-96" />
        </div>
      </Section>
    );
  }
  return (
    <Section
      aside={actions}
      note={stale ? <span className="text-warn">The form has changed since.</span> : undefined}
      title={plan.on ? `Plan for ${plan.on}` : "Plan"}
    >
      <div data-plan={plan.probe.state} data-testid="plan">
        {!plan.on && (
          <div className="space-y-2 pt-3" role="status">
            <Start plan={plan} />
          </div>
        )}
        {stop.stopError != null && isPending(plan) && (
          <p className="pt-3 text-bad" role="alert">
            The plan could not be cancelled:{" "}
            {isApiError(stop.stopError) ? stop.stopError.message : String(stop.stopError)}
          </p>
        )}
        <Warnings plan={plan} />
        {!plan.on && <PlacementMap plan={plan} />}
        {plan.program ? (
          <Program plan={plan} />
        ) : (
          <ProbeNote on={plan.on ?? null} pending={isPending(plan)} probe={plan.probe} />
        )}
      </div>
    </Section>
  );
}

function Start({ plan }: { plan: Plan }) {
  if (plan.starts_now) return <p className="text-ok">It would start at once.</p>;
  return (
    <>
      <p className="text-warn">It would wait.</p>
      {plan.why && <Waiting why={plan.why} />}
    </>
  );
}

function Program({ plan }: { plan: Plan }) {
  const { program } = plan;
  if (!program) return null;
  const steps = count(program.steps, "step");
  const calls =
    program.calls != null && program.calls !== program.steps
      ? ` (${count(program.calls, "call")} of run)`
      : "";
  if (program.chips) return <Chips chips={program.chips} />;
  const seen = program.ended ? `the whole program, ${steps}${calls},` : `the first ${steps}${calls}`;
  return (
    <>
      <p className="pt-4 text-muted text-xs">
        Found by running {seen} on simulated devices of {plan.probe.host_name}, in{" "}
        {program.seconds.toFixed(1)} s. Nothing was kept.
      </p>
      <div className="grid gap-x-10 gap-y-6 pt-5 xl:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <Batches program={program} />
        <Memory devices={plan.devices} program={program} />
        <Collectives program={program} />
        <PlannedVariables devices={plan.devices.length} program={program} />
      </div>
    </>
  );
}
