import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { isApiError } from "@/api/errors";
import { keys } from "@/api/queries";
import { Button } from "@/components/ui/button";
import { formatDuration } from "@/lib/format";
import { cancelRun, type SteadyRun } from "../queries";

/** Asks before it stops a run: the second press does it, and one beside it, or Escape, goes back. */
export function CancelRun({ run }: { run: SteadyRun }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  // What asked is gone with the question: the button that takes its place takes the focus too.
  const [asked, setAsked] = useState(false);
  const goBack = () => {
    setAsking(false);
    setAsked(true);
  };
  const cancel = useMutation({
    mutationFn: () => cancelRun(run.id),
    onSuccess: (answer) => client.setQueryData(keys.run(run.id), answer),
    onSettled: goBack,
  });
  if (run.cancel_requested || run.state === "CANCELLING") {
    return (
      <span className="text-warn text-xs">Stopping, up to {formatDuration(run.limits.grace_s)} grace</span>
    );
  }
  if (asking) {
    return (
      // biome-ignore lint/a11y/noStaticElementInteractions: Escape on either of its buttons goes back
      <div className="flex items-center gap-2" onKeyDown={({ key }) => key === "Escape" && goBack()}>
        <span>Stop this run?</span>
        <Button autoFocus compact disabled={cancel.isPending} look="danger" onClick={() => cancel.mutate()}>
          Stop it
        </Button>
        <Button compact look="quiet" onClick={goBack}>
          Keep running
        </Button>
      </div>
    );
  }
  return (
    <>
      {cancel.error && (
        <span className="max-w-72 text-bad text-xs" role="alert">
          {isApiError(cancel.error) ? cancel.error.message : "The run could not be cancelled."}
        </span>
      )}
      <Button autoFocus={asked} compact look="danger" onClick={() => setAsking(true)}>
        Cancel
      </Button>
    </>
  );
}
