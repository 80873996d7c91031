import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import { isApiError } from "@/api/errors";
import { keys } from "@/api/queries";
import { Button } from "@/components/ui/button";
import { shortId } from "@/lib/format";
import { notify } from "@/lib/notices";
import type { SteadyRun } from "../queries";

/** Asks before it deletes an ended run for good, with the reason if there is one, and then shows the other runs. */
export function DeleteRun({ run, onClose }: { run: SteadyRun; onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [why, setWhy] = useState("");
  const remove = useMutation({
    mutationFn: () =>
      body(api.DELETE("/api/v1/runs/{run_id}", { params: { path: { run_id: run.id }, query: { why } } })),
    onSuccess: async () => {
      notify(`Run ${shortId(run.id)} deleted`);
      await navigate({ to: "/runs" });
      client.removeQueries({ queryKey: keys.run(run.id) });
      void client.invalidateQueries({ queryKey: keys.runs });
    },
  });
  return (
    <form
      aria-label="Delete this run"
      className="flex flex-wrap items-center gap-2 rounded-panel border border-line-strong px-3 py-1.5"
      onKeyDown={(event) => event.key === "Escape" && onClose()}
      onSubmit={(event) => {
        event.preventDefault();
        remove.mutate();
      }}
    >
      <span className="mr-auto">Delete this run with all that it logged, for good?</span>
      <input
        aria-label="Why it is deleted"
        // biome-ignore lint/a11y/noAutofocus: the button that asks for it was just pressed
        autoFocus
        className="h-7 w-64 rounded-control border border-line-strong bg-bg px-2"
        maxLength={200}
        onChange={(event) => setWhy(event.target.value)}
        placeholder="why (optional)"
        value={why}
      />
      <Button compact disabled={remove.isPending} look="danger" type="submit">
        {remove.isPending ? "Deleting" : "Delete it"}
      </Button>
      <Button compact look="quiet" onClick={onClose}>
        Keep it
      </Button>
      {remove.error && (
        <span className="w-full text-bad text-xs" role="alert">
          {isApiError(remove.error) ? remove.error.message : "The run could not be deleted."}
        </span>
      )}
    </form>
  );
}
