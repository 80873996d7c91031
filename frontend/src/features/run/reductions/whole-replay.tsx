import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Reduction } from "@/api/schema";
import { Button, buttonClass } from "@/components/ui/button";
import { ErrorState } from "@/components/ui/view-states";
import { formatBytes } from "@/lib/format";
import { reductionElementsQuery } from "../queries";
import { withElements } from "./elements";
import { replayOf } from "./replay";
import { ReplayLine } from "./result-column";

/** Of a reduction of large arrays: has every element read from the server, and the result worked out from them. */
export function WholeReplay({ reduction, runId }: { reduction: Reduction; runId: string }) {
  const [asked, setAsked] = useState(false);
  const elements = useQuery({ ...reductionElementsQuery(runId, reduction.id), enabled: asked });
  const found = useMemo(() => replayFrom(reduction, elements.data), [reduction, elements.data]);
  const size = formatBytes(reduction.whole_bytes);
  const file = `/api/v1/runs/${runId}/reductions/${reduction.id}/values`;
  if (elements.error) {
    return (
      <ErrorState
        error={elements.error}
        onRetry={() => void elements.refetch()}
        what="The elements could not be loaded"
      />
    );
  }
  return (
    <div className="mt-2" data-testid="whole-replay">
      <div className="flex flex-wrap gap-1">
        {found === undefined && (
          <Button compact disabled={asked} onClick={() => setAsked(true)}>
            {asked ? `Reading ${size}…` : "Replay"}
          </Button>
        )}
        <a
          className={buttonClass("quiet", true)}
          download
          href={file}
          title="Inputs by replica, then the result: row-major, little-endian"
        >
          Download {size}
        </a>
      </div>
      {found === null && (
        <p className="mt-1 text-2xs text-muted" role="status">
          not replayed: {reduction.output.dtype} is no sum of floating point
        </p>
      )}
      {found && <ReplayLine replay={found} saysDifference />}
    </div>
  );
}

/** undefined until the elements are there; null where they are no sum of floating point. */
function replayFrom(reduction: Reduction, elements: ArrayBuffer | undefined) {
  if (!elements) return undefined;
  const whole = withElements(reduction, elements);
  return whole && replayOf(whole);
}
