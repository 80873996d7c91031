import { Link } from "@tanstack/react-router";
import type { Device, Host, Overview } from "@/api/schema";
import { DeviceGlyph, deviceSentence } from "@/components/devices/device-glyph";
import { Section } from "@/components/ui/section";
import { StateIcon } from "@/components/ui/state-badge";
import { EmptyState } from "@/components/ui/view-states";
import { count, formatInteger } from "@/lib/format";

/** Of more hosts only so many are drawn, and each by its counts: the page is there to be read at a glance. */
const MOST_WITH_GLYPHS = 24;
const MOST_HOSTS = 30;

/** One glyph per device, grouped by host; many hosts, and those beyond the server's 2048 devices, show their counts only. */
export function FleetStrip({ overview }: { overview: Overview }) {
  const { hosts, devices, hosts_total: machines, devices_held: held, devices_total: total } = overview;
  return (
    <Section
      aside={
        <Link className="link" to="/devices">
          Devices
        </Link>
      }
      note={
        total > 0 &&
        `${formatInteger(held)} held, ${formatInteger(total - held)} free, on ${count(machines, "host")}`
      }
      title="Fleet"
    >
      {hosts.length === 0 ? (
        <EmptyState snippet="drumline up" title="No worker has registered.">
          Start one on this machine; it shows here as soon as it has counted its devices.
        </EmptyState>
      ) : (
        <ul className="grid grid-cols-[repeat(auto-fill,minmax(200px,1fr))] gap-x-8 gap-y-4 pt-3">
          {hosts.slice(0, MOST_HOSTS).map((host) => (
            <HostGlyphs
              devices={machines > MOST_WITH_GLYPHS ? [] : devices.filter((device) => device.host === host.id)}
              host={host}
              key={host.id}
            />
          ))}
          {machines > MOST_HOSTS && (
            <li>
              <Link className="link" to="/devices">
                {count(machines - MOST_HOSTS, "more host")}
              </Link>
            </li>
          )}
        </ul>
      )}
    </Section>
  );
}

function HostGlyphs({ host, devices }: { host: Host; devices: readonly Device[] }) {
  const simulated = devices.length > 0 && devices.every((device) => device.simulated);
  return (
    <li className="min-w-0">
      <div className="flex items-center gap-1.5">
        <StateIcon size={10} state={host.state} />
        <Link
          className="min-w-6 truncate leading-6 hover:underline"
          search={{ sel: `host:${host.id}` }}
          to="/devices"
        >
          {host.name}
        </Link>
        <span className="shrink-0 text-muted text-xs">
          {simulated ? "simulated " : ""}
          {host.platforms.join(", ")}
        </span>
      </div>
      {devices.length > 0 ? (
        <div className="-ml-[3px] flex flex-wrap">
          {devices.map((device) => (
            <DeviceLink device={device} key={device.id} />
          ))}
        </div>
      ) : (
        <div className="mt-1 text-muted text-xs">
          {host.devices - host.free_devices} of {host.devices} held
        </div>
      )}
    </li>
  );
}

/** A held device leads to its run, a free one to its facts. */
function DeviceLink({ device }: { device: Device }) {
  const look = "inline-flex size-6 items-center justify-center rounded-control hover:bg-hover";
  const what = deviceSentence(device);
  const glyph = <DeviceGlyph device={device} size={18} />;
  return device.run ? (
    <Link
      aria-label={what}
      className={look}
      params={{ runId: device.run }}
      title={what}
      to="/runs/$runId/placement"
    >
      {glyph}
    </Link>
  ) : (
    <Link
      aria-label={what}
      className={look}
      search={{ sel: `device:${device.id}` }}
      title={what}
      to="/devices"
    >
      {glyph}
    </Link>
  );
}
