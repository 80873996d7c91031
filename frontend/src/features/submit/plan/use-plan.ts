import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { api, body, idempotencyKey } from "@/api/client";
import type { Plan, RunSubmit } from "@/api/schema";
import type { Submission } from "../request";

const LOOK_EVERY_MS = 500;

export interface PlanOrder {
  request: Submission;
  /** The slice to compile for; null: the devices where it would be placed. */
  on: string | null;
  /** The parameter whose largest value that fits the slice is looked for. */
  largest: string | null;
}

/** Orders plans and follows the newest one. `of` is the order that the shown plan answers. */
export function usePlan() {
  const client = useQueryClient();
  const newest = useRef<Plan | null>(null);
  const order = useMutation({
    mutationFn: async ({ request, on, largest }: PlanOrder) => {
      // A probe that could not be ended ends by itself at its limit.
      if (newest.current && isPending(newest.current)) void cancel(newest.current.id).catch(() => {});
      return body(
        api.POST("/api/v1/plan", {
          params: { header: { "Idempotency-Key": idempotencyKey() } },
          // What has a default may be left out of a request; the generated type does not say so.
          body: {
            run: request as RunSubmit,
            probe: { limit_s: on === null ? 60 : 600, steps: 16, on, batch_parameter: largest },
          },
        }),
      );
    },
    onSuccess: (plan) => {
      newest.current = plan;
    },
  });
  const id = order.data?.id ?? "";
  const followed = useQuery({
    queryKey: ["plan", id],
    queryFn: ({ signal }) =>
      body(api.GET("/api/v1/plan/{plan_id}", { params: { path: { plan_id: id } }, signal })),
    enabled: id !== "",
    initialData: order.data,
    refetchInterval: ({ state }) => (state.data && isPending(state.data) ? LOOK_EVERY_MS : false),
  });
  newest.current = followed.data ?? newest.current;
  const stop = useMutation({
    mutationFn: cancel,
    onSuccess: (plan) => client.setQueryData(["plan", plan.id], plan),
  });
  return {
    make: order.mutate,
    ordering: order.isPending,
    error: order.error ?? followed.error,
    plan: order.isPending ? undefined : followed.data,
    of: order.variables,
    stop: () => stop.mutate(id),
    stopping: stop.isPending,
    /** Why the shown plan could not be cancelled. */
    stopError: stop.variables === id ? stop.error : null,
  };
}

/** Whether a worker still looks at the program. */
export function isPending(plan: Plan): boolean {
  return plan.probe.state === "waiting" || plan.probe.state === "running";
}

function cancel(id: string) {
  return body(api.POST("/api/v1/plan/{plan_id}:cancel", { params: { path: { plan_id: id } } }));
}
