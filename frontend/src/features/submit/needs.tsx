import { classNames } from "@/lib/class-names";
import type { Fit } from "./fit";

const MAX_HOSTS = 6;

/** What the run needs beside what is free: the first step of a plan, and no promise of one. */
export function Needs({ fit, replicas }: { fit: Fit; replicas: number }) {
  const shown = fit.hosts.slice(0, MAX_HOSTS);
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
              <tr key={host.host}>
                <th className="w-0 max-w-40 truncate pr-4 text-left font-normal text-muted" scope="row">
                  {host.name}
                </th>
                <td>
                  <Bar free={host.free} needed={replicas} total={host.total} />
                </td>
                <td className="w-0 whitespace-nowrap pl-4 text-right">
                  {host.free}
                  <span className="text-muted"> of {host.total} free</span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p className="mt-2 text-muted text-xs">
        All replicas of a run share one host. The server places the run when it starts, so this can change
        until then.
      </p>
    </div>
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
