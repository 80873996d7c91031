import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { isApiError } from "@/api/errors";
import { keys } from "@/api/queries";
import type { Batch } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { count } from "@/lib/format";
import { cancelBatch } from "./queries";
import { liveRuns } from "./states";

/** Asks before it stops every run of a batch that has not ended. */
export function CancelBatch({ batch }: { batch: Batch }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  const cancel = useMutation({
    mutationFn: () => cancelBatch(batch.id),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.batches }),
    onSettled: () => setAsking(false),
  });
  const live = liveRuns(batch);
  if (live === 0 || batch.cancel?.left) return null;
  if (!asking) {
    return (
      <>
        {cancel.error && (
          <span className="text-bad text-xs" role="alert">
            {isApiError(cancel.error) ? cancel.error.message : "The runs could not be cancelled."}
          </span>
        )}
        <Button compact look="danger" onClick={() => setAsking(true)}>
          Cancel all
        </Button>
      </>
    );
  }
  return (
    <div className="flex items-center gap-2">
      <span>Stop {count(live, "run")}?</span>
      <Button autoFocus compact disabled={cancel.isPending} look="danger" onClick={() => cancel.mutate()}>
        Stop them
      </Button>
      <Button compact look="quiet" onClick={() => setAsking(false)}>
        Keep running
      </Button>
    </div>
  );
}
