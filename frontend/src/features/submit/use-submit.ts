import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useRef } from "react";
import { api, body, idempotencyKey } from "@/api/client";
import type { RunSubmit, SubmittedBatch, SubmittedRun, SweepSubmit } from "@/api/schema";
import { exactText } from "@/lib/wire-numbers";
import type { Submission } from "./request";
import type { SweepRequest } from "./sweep";

/** Sends a run or a sweep and goes to it. The same request keeps its Idempotency-Key, so that a second try makes nothing twice. */
export function useSubmit(onDone: () => void) {
  const navigate = useNavigate();
  const last = useRef({ text: "", key: "" });
  return useMutation({
    mutationFn: async (request: Submission | SweepRequest): Promise<SubmittedRun | SubmittedBatch> => {
      const text = exactText(request);
      if (text !== last.current.text) last.current = { text, key: idempotencyKey() };
      const params = { header: { "Idempotency-Key": last.current.key } };
      // What has a default may be left out of a request; the generated types do not say so.
      return "sweep" in request
        ? body(api.POST("/api/v1/runs:sweep", { params, body: request as SweepSubmit }))
        : body(api.POST("/api/v1/runs", { params, body: request as RunSubmit }));
    },
    onSuccess: async (made) => {
      last.current = { text: "", key: "" };
      onDone();
      if ("batch" in made) await navigate({ to: "/batches/$batchId", params: { batchId: made.batch.id } });
      else await navigate({ to: "/runs/$runId/metrics", params: { runId: made.run.id } });
    },
  });
}
