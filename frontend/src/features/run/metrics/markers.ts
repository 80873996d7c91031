import { replaceEqualDeep, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Attempt, Checkpoint } from "@/api/schema";
import type { Marker } from "@/components/charts/markers";
import type { XAxis } from "@/components/metrics/x-axis";
import { formatInteger } from "@/lib/format";
import { attemptsQuery, checkpointsQuery } from "../queries";

/** What happened to the run, where it stands on the axis: checkpoints, and where further attempts went on. */
export function markersOf(
  attempts: readonly Attempt[],
  checkpoints: readonly Checkpoint[],
  axis: XAxis,
  zero: number | null,
): Marker[] {
  const seconds = (moment: string | null) =>
    moment === null || zero === null ? null : (Date.parse(moment) - zero) / 1000;
  const at = (x: number | null, kind: Marker["kind"], text: string): Marker[] =>
    x === null ? [] : [{ x, kind, text }];
  const saved = checkpoints.flatMap(({ step, created_at }) =>
    at(
      axis === "step" ? step : seconds(created_at),
      "checkpoint",
      `checkpoint at step ${formatInteger(step)}`,
    ),
  );
  const begun = attempts
    .filter(({ number }) => number > 1)
    .flatMap(({ number, resumed_step, started_at }) => {
      const from = resumed_step == null ? "from the start" : `after step ${formatInteger(resumed_step)}`;
      return at(
        axis === "step" ? (resumed_step ?? 0) : seconds(started_at),
        "attempt",
        `attempt ${number} ${from}`,
      );
    });
  return [...saved, ...begun];
}

/** The same list as long as it has the same markers: every chart is drawn again for another one. */
export function useMarkers(runId: string, axis: XAxis, zero: number | null): Marker[] {
  const [held, hold] = useState<Marker[]>([]);
  const attempts = useQuery(attemptsQuery(runId)).data;
  const checkpoints = useInfiniteQuery(checkpointsQuery(runId)).data;
  const found = useMemo(
    () => markersOf(attempts ?? [], checkpoints?.pages.flatMap(({ items }) => items) ?? [], axis, zero),
    [attempts, checkpoints, axis, zero],
  );
  const markers = replaceEqualDeep(held, found);
  if (markers !== held) hold(markers);
  return markers;
}
