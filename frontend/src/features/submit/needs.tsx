import { Skeleton } from "@/components/ui/view-states";
import { classNames } from "@/lib/class-names";
import type { Draft } from "./draft";
import type { Fit, HostFit } from "./fit";
import { needsFlaws } from "./request";
import type { Shape } from "./shape";

const MAX_HOSTS = 6;

interface ForecastProps {
  draft: Draft;
  /** undefined until the fleet is known. */
  fit: Fit | undefined;
  fleetError: unknown;
  shape: Shape;
}

/** Whether it could start now, once the fields say what it needs. */
export function Forecast({ draft, fit, fleetError, shape }: ForecastProps) {
  if (Object.keys(needsFlaws(draft)).length > 0) {
    return (
      <p className="pt-3 text-muted" role="status">
        How many devices it needs is known once the marked fields of the strategy are right.
      </p>
    );
  }
  if (fit) return <Needs fit={fit} shape={shape} />;
  if (!fleetError) return <Skeleton className="mt-4 w-64" />;
  return (
    <p className="pt-3 text-warn">The fleet could not be read; the server will say whether the run fits.</p>
  );
}

/** What the run needs beside what is free: the first step of a plan, and no promise of one. */
export function Needs({ fit, shape }: { fit: Fit; shape: Shape }) {
  const shown = fit.hosts.slice(0, MAX_HOSTS);
  const mixed = new Set(fit.hosts.map((host) => host.platform)).size > 1;
  return (
    <div className="pt-3">
      <p
        className={classNames(
          fit.verdict === "never" ? "text-bad" : fit.verdict === "waits" ? "text-warn" : "text-ok",
        )}
        role="status"
      >
        {fit.sentence}
      </p>
      {shown.length > 0 && (
        <table className="mt-2 w-full" aria-label="Free devices by host">
          <tbody>
            {shown.map((host) => (
              <tr key={`${host.host} ${host.platform}`}>
                <th className="w-0 max-w-40 truncate pr-4 text-left font-normal text-muted" scope="row">
                  {host.name}
                  {mixed && `, ${host.platform.toUpperCase()}`}
                </th>
                <td>
                  <Bar
                    free={host.free}
                    needed={shape.replicas * shape.devicesPerReplica}
                    total={host.total}
                  />
                </td>
                <td className="w-0 whitespace-nowrap pl-4 text-right">
                  <Free host={host} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p className="mt-2 text-muted text-xs">
        {shape.oneHost
          ? `All replicas share one host, as ${shape.oneHost} needs.`
          : `The replicas share one host if one has room for all, else they are split over several${shape.oneSlice ? " of one slice" : ""}.`}{" "}
        The server places the run when it starts, so this can change until then.
      </p>
    </div>
  );
}

function Free({ host }: { host: HostFit }) {
  if (host.outOfService) return <span className="text-muted">{host.outOfService}</span>;
  return (
    <>
      {host.free}
      <span className="text-muted">
        {" "}
        of {host.total} free{host.simulated && ", simulated"}
      </span>
    </>
  );
}

/** Free of all, with a mark where the need lies. */
function Bar({ free, total, needed }: { free: number; total: number; needed: number }) {
  const span = Math.max(total, needed, 1);
  return (
    <svg
      aria-hidden="true"
      className="block h-2.5 w-full"
      preserveAspectRatio="none"
      viewBox={`0 0 ${span * 10} 10`}
    >
      <rect fill="var(--line)" height="4" width={total * 10} y="3" />
      <rect fill="var(--active)" height="4" width={free * 10} y="3" />
      <rect
        fill="var(--text)"
        height="10"
        width={span * 0.06}
        x={Math.min(needed * 10, span * 10 - span * 0.06)}
      />
    </svg>
  );
}
