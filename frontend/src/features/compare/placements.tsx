import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { api, body } from "@/api/client";
import type { Placement } from "@/api/schema";
import { LineMark } from "@/components/charts/line-mark";
import { Button } from "@/components/ui/button";
import { ScrollBox } from "@/components/ui/scroll-box";
import { Section } from "@/components/ui/section";
import { Skeleton } from "@/components/ui/view-states";
import { classNames } from "@/lib/class-names";
import { count } from "@/lib/format";
import type { Compared } from "./model";

/** Runs whose placement is read beside the base's. */
const MOST_RUNS = 8;
const MOST_REPLICAS = 64;

/** Which replica sat where, against the base. */
export function Placements({ compared }: { compared: readonly Compared[] }) {
  const [open, setOpen] = useState(false);
  const chosen = [...compared.filter(({ base, drawn }) => base || drawn)]
    .sort((a, b) => Number(b.base) - Number(a.base))
    .slice(0, MOST_RUNS);
  return (
    <Section
      note={chosen.length < compared.length && `the base and ${chosen.length - 1} others`}
      title="Placement"
    >
      {open ? (
        <PlacementTable chosen={chosen} />
      ) : (
        <Button className="mt-3" compact onClick={() => setOpen(true)}>
          Compare where {count(chosen.length, "run")} sat
        </Button>
      )}
    </Section>
  );
}

function PlacementTable({ chosen }: { chosen: readonly Compared[] }) {
  const answers = useQueries({
    queries: chosen.map(({ id }) => ({
      queryKey: ["run", id, "placement"],
      queryFn: ({ signal }: { signal: AbortSignal }) =>
        body(api.GET("/api/v1/runs/{run_id}/placement", { params: { path: { run_id: id } }, signal })),
    })),
  });
  const placed = answers.map(({ data }) => (data ? devicesByReplica(data) : new Map<number, string>()));
  const replicas = Math.max(0, ...placed.map((one) => one.size));
  if (answers.some(({ isPending }) => isPending)) return <Skeleton className="mt-3 w-60" />;
  return (
    <ScrollBox className="pt-2">
      <table aria-label="Where each replica sat" className="border-collapse">
        <thead>
          <tr>
            <th className="h-8 pr-4 text-left font-normal text-muted text-xs" scope="col">
              Replica
            </th>
            {chosen.map(({ id, label, style }) => (
              <th className="px-2.5 text-left font-normal text-xs" key={id} scope="col">
                <span className="flex items-center gap-1.5">
                  <LineMark style={style} />
                  {label}
                </span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: Math.min(replicas, MOST_REPLICAS) }, (_, replica) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a replica is its number
            <tr className="border-line border-b" key={replica}>
              <th className="h-7 text-left font-normal" scope="row">
                {replica}
              </th>
              {placed.map((one, at) => (
                <td
                  className={classNames(
                    "px-2.5",
                    one.get(replica) !== placed[0]?.get(replica) && "bg-accent-soft",
                  )}
                  key={chosen[at]?.id}
                >
                  {one.get(replica) ?? <span className="text-muted">–</span>}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {replicas > MOST_REPLICAS && (
        <p className="pt-2 text-muted">
          The first {MOST_REPLICAS} of {replicas} replicas.
        </p>
      )}
    </ScrollBox>
  );
}

/** `host-a 3` for each replica, with all of its devices. */
export function devicesByReplica({ devices }: Pick<Placement, "devices">): Map<number, string> {
  const placed = new Map<number, string>();
  for (const { replica, host_name, index } of devices) {
    if (replica === null) continue;
    const before = placed.get(replica);
    placed.set(replica, before ? `${before}, ${host_name} ${index}` : `${host_name} ${index}`);
  }
  return placed;
}
