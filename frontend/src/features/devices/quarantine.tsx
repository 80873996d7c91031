import { Link } from "@tanstack/react-router";
import type { HostTrouble, Quarantine } from "@/api/schema";
import { Age } from "@/components/runs/run-columns";
import { classNames } from "@/lib/class-names";
import { shortId } from "@/lib/format";

/** Why a device is not given out, since when, for which run, and what its worker found. */
export function DeviceQuarantine({ quarantine }: { quarantine: Quarantine }) {
  return (
    <div className="space-y-1 border-bad border-l-2 pl-3">
      <p>{quarantine.sentence}</p>
      {quarantine.probe_message && <p>{quarantine.probe_message}</p>}
      <p className="text-muted">
        Since <Age moment={quarantine.since} />, after{" "}
        <Link className="link" params={{ runId: quarantine.run }} to="/runs/$runId/placement">
          <code>{shortId(quarantine.run)}</code>
        </Link>
        .{" "}
        {quarantine.probed_at
          ? "Its worker probes it each minute."
          : "Its worker probes it as soon as it can."}
      </p>
    </div>
  );
}

/** Which runs failed on a host, and what follows from it. */
export function TroubleNote({ trouble }: { trouble: HostTrouble }) {
  const quarantined = trouble.kind === "quarantined";
  return (
    <div className={classNames("space-y-2 border-l-2 pl-3", quarantined ? "border-bad" : "border-warn")}>
      <p>{trouble.sentence}</p>
      <ul>
        {trouble.failures.map((failure) => (
          <li className="flex items-center gap-2" key={`${failure.run} ${failure.at}`}>
            <Link className="link truncate" params={{ runId: failure.run }} to="/runs/$runId/logs">
              {failure.job} <code>{shortId(failure.run)}</code>
            </Link>
            <code className="text-xs">{failure.reason}</code>
            <span className="ml-auto text-muted">
              <Age moment={failure.at} />
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}
