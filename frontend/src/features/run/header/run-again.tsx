import { useMutation } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useRef } from "react";
import { api, body, idempotencyKey } from "@/api/client";
import { isApiError } from "@/api/errors";
import { Button, buttonClass } from "@/components/ui/button";
import type { SteadyRun } from "../queries";

/** The same version with the same parameters once more: at once, or by way of the Submit form. */
export function RunAgain({ run }: { run: SteadyRun }) {
  const navigate = useNavigate();
  const key = useRef(idempotencyKey());
  const rerun = useMutation({
    mutationFn: () =>
      body(
        api.POST("/api/v1/runs/{run_id}:rerun", {
          params: { path: { run_id: run.id }, header: { "Idempotency-Key": key.current } },
        }),
      ),
    onSuccess: async ({ run: started }) => {
      key.current = idempotencyKey();
      await navigate({ to: "/runs/$runId/metrics", params: { runId: started.id } });
    },
  });
  return (
    <>
      {rerun.error && (
        <span className="max-w-72 text-bad text-xs" role="alert">
          {isApiError(rerun.error) ? rerun.error.message : "It could not be run again."}
        </span>
      )}
      <Link className={buttonClass("plain", true)} search={{ from: run.id }} to="/submit">
        Edit and run
      </Link>
      <Button compact disabled={rerun.isPending} onClick={() => rerun.mutate()} title={meaning(run)}>
        Run again
      </Button>
    </>
  );
}

function meaning(run: SteadyRun): string {
  const begins = run.resume_from ? "from the same checkpoint as this run" : "from its first step";
  return `Version ${run.version} with the same parameters and options, ${begins}`;
}
