import { Link } from "@tanstack/react-router";
import type { Device, Host } from "@/api/schema";
import { deviceName } from "@/components/devices/device-glyph";
import { Age, RunLink } from "@/components/runs/run-columns";
import { CopyButton } from "@/components/ui/copy-button";
import { Drawer } from "@/components/ui/drawer";
import { type Fact, Facts } from "@/components/ui/facts";
import { PrincipalName } from "@/components/ui/principal-name";
import { ReplicaChip } from "@/components/ui/replica-chip";
import { StateBadge } from "@/components/ui/state-badge";
import { formatBytes, formatUtc, shortId } from "@/lib/format";
import { HostActions, ReleaseDevice } from "./operate";
import { DeviceQuarantine, TroubleNote } from "./quarantine";
import type { Selection } from "./selection";
import { HostWarnings } from "./warnings";

/** The facts of the selected device or host. */
export function Inspector({ selection, onClose }: { selection: Selection; onClose: () => void }) {
  if (selection.kind === "host") {
    return (
      <Drawer onClose={onClose} title={selection.host.name}>
        <HostFacts host={selection.host} />
      </Drawer>
    );
  }
  return (
    <Drawer onClose={onClose} title={`${deviceName(selection.device)} on ${selection.device.host_name}`}>
      <DeviceFacts device={selection.device} host={selection.host} />
    </Drawer>
  );
}

function DeviceFacts({ device, host }: { device: Device; host: Host | undefined }) {
  return (
    <div className="space-y-4">
      {device.simulated && (
        <p className="border-line-strong border-l-2 pl-3 text-muted">
          Simulated: a share of the host's CPU that JAX counts as a device. Good for trying and testing;
          timings say nothing about accelerators.
        </p>
      )}
      {device.quarantine && (
        <>
          <DeviceQuarantine quarantine={device.quarantine} />
          <ReleaseDevice device={device} />
        </>
      )}
      <Facts
        facts={[
          ["State", <StateBadge key="state" state={device.state} />],
          [
            "Held by",
            device.run ? <RunLink key="run" run={{ id: device.run, job: device.job ?? "run" }} /> : "nobody",
          ],
          [
            "Replica",
            device.replica === null ? (
              device.run ? null : (
                "none"
              )
            ) : (
              <ReplicaChip key="replica" replica={device.replica} />
            ),
          ],
          ["Kind", device.kind],
          ["Index", `${device.platform}:${device.index}`],
          ["Memory", device.memory_bytes === null ? null : formatBytes(device.memory_bytes)],
          ["Coordinates", device.coords && `(${device.coords.join(", ")})`],
          ["Core on chip", device.core_on_chip],
          ["Host", host ? <HostLink host={host} key="host" /> : device.host_name],
          ["Id", <Identifier id={device.id} key="id" />],
        ]}
      />
    </div>
  );
}

function drainFact({ drain_requested_by: who }: Host): Fact[] {
  return who ? [["Drained by", <PrincipalName key="drain" who={who} />]] : [];
}

function HostFacts({ host }: { host: Host }) {
  return (
    <div className="space-y-4">
      <HostWarnings host={host} />
      {host.trouble && <TroubleNote trouble={host.trouble} />}
      <HostActions host={host} />
      <Facts
        facts={[
          ["State", <StateBadge key="state" state={host.state} />],
          ...drainFact(host),
          ["Last heard of", <Age key="heard" moment={host.last_heartbeat_at} />],
          ["Devices", `${host.free_devices} of ${host.devices} free`],
          ["Platforms", `${host.platforms.join(", ")}${host.simulated_devices > 0 ? ", simulated" : ""}`],
          ["CPUs", host.cpu_count],
          ["Memory", formatBytes(host.memory_bytes)],
          ["JAX", host.jax_version],
          ["Worker", `${host.version}${host.protocol ? `, protocol ${host.protocol}` : ""}`],
          ["Registered", formatUtc(host.registered_at)],
          ["Id", <Identifier id={host.id} key="id" />],
        ]}
      />
      {host.runs.length > 0 && (
        <div>
          <h3 className="mb-1 text-muted">Runs here</h3>
          <ul>
            {host.runs.map((run) => (
              <li key={run}>
                <Link className="link" params={{ runId: run }} to="/runs/$runId/placement">
                  <code>{shortId(run)}</code>
                </Link>
              </li>
            ))}
          </ul>
        </div>
      )}
    </div>
  );
}

function HostLink({ host }: { host: Host }) {
  return (
    <Link className="link" search={(old) => ({ ...old, sel: `host:${host.id}` })} to="/devices">
      {host.name}
    </Link>
  );
}

function Identifier({ id }: { id: string }) {
  return (
    <span className="inline-flex max-w-full items-center">
      <code className="truncate">{id}</code>
      <CopyButton bare label="Copy id" text={id} />
    </span>
  );
}
