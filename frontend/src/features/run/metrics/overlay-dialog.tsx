import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useDeferredValue, useState } from "react";
import { NameDialog } from "@/components/metrics/name-dialog";
import { count } from "@/lib/format";
import { metricNamesQuery } from "../queries";

const route = getRouteApi("/runs/$runId/metrics");
/** More lines are told apart by nobody. */
const MOST = 16;

interface OverlayDialogProps {
  names: readonly string[];
  onChoose: (names: string[]) => void;
  onClose: () => void;
}

/** Chooses which metrics share one chart. */
export function OverlayDialog({ names, onChoose, onClose }: OverlayDialogProps) {
  const { runId } = route.useParams();
  const [text, setText] = useState("");
  const search = useDeferredValue(text.trim());
  const found = useInfiniteQuery(metricNamesQuery(runId, search || undefined, undefined, 50));
  return (
    <NameDialog
      action={(some) => `Draw ${count(some, "metric")} in one chart`}
      found={{
        names: found.data?.pages.flatMap((page) => page.items.map(({ name }) => name)) ?? [],
        error: found.error,
        pending: found.isPending,
        more: found.hasNextPage ? () => void found.fetchNextPage() : undefined,
      }}
      least={2}
      most={MOST}
      names={names}
      onChoose={onChoose}
      onClose={onClose}
      onSearch={setText}
      search={text}
      title="Metrics in one chart"
    />
  );
}
