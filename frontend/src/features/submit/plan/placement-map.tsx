import type { PlacedDevice, Plan } from "@/api/schema";
import { ReplicaChip } from "@/components/ui/replica-chip";

/** Each host with the devices that the run would have: their replica, and the rows that it gets in a step. */
export function PlacementMap({ plan }: { plan: Plan }) {
  const hosts = Map.groupBy(plan.devices, (device) => device.host_name);
  const rows = plan.program?.batches[0]?.rows;
  if (plan.devices.length === 0) {
    return <p className="pt-4 text-bad">No host that is known could hold it.</p>;
  }
  return (
    <div className="mt-4 space-y-4">
      {[...hosts].map(([host, devices]) => (
        <figure aria-label={`Replicas on ${host}`} key={host}>
          <figcaption className="mb-1.5 text-muted text-xs">
            {host}
            {!plan.starts_now && ", once its devices are free"}
          </figcaption>
          <ul className="grid grid-cols-[repeat(auto-fill,minmax(112px,1fr))] pr-px pb-px">
            {devices.map((device) => (
              <Cell device={device} key={device.device} rows={rows?.[device.replica ?? -1]} />
            ))}
          </ul>
        </figure>
      ))}
    </div>
  );
}

function Cell({ device, rows }: { device: PlacedDevice; rows: number | undefined }) {
  return (
    <li className="-mr-px -mb-px border border-line px-3 py-2" data-testid="planned-device">
      <div className="flex items-center justify-between gap-2">
        {device.replica === null ? (
          <span className="text-muted">parameters</span>
        ) : (
          <ReplicaChip replica={device.replica} />
        )}
        <span className="font-mono text-muted text-xs">
          {device.platform}:{device.index}
        </span>
      </div>
      <p className="mt-0.5 text-xs">
        {rows === undefined ? (
          <span className="text-muted">logical {device.logical}</span>
        ) : (
          <>
            {rows} <span className="text-muted">{rows === 1 ? "row" : "rows"} a step</span>
          </>
        )}
      </p>
    </li>
  );
}
