import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { devicesQuery, hostsQuery, keys } from "@/api/queries";
import type { Device, Host } from "@/api/schema";
import { Section } from "@/components/ui/section";
import { EmptyState, ErrorState, SkeletonRows, StaleBanner } from "@/components/ui/view-states";
import { count, formatInteger } from "@/lib/format";
import { useLiveList } from "@/lib/live";
import { useAddHost } from "./add-host";
import { DeviceMap } from "./device-map";
import { FilterBar } from "./filter-bar";
import { HostTable } from "./host-table";
import { Inspector } from "./inspector";
import { findSelection, isShown } from "./selection";
import { HostWarnings } from "./warnings";

const route = getRouteApi("/devices");

/** What do I own, and what is free? */
export function DevicesPage() {
  useLiveList("fleet", [keys.hosts, keys.devices]);
  const hosts = useQuery(hostsQuery);
  const devices = useQuery(devicesQuery);
  const error = hosts.error ?? devices.error;
  if (hosts.data && devices.data) {
    const since = Math.min(hosts.dataUpdatedAt, devices.dataUpdatedAt);
    return (
      <Fleet
        banner={error && <StaleBanner error={error} since={since} />}
        devices={devices.data}
        hosts={hosts.data}
      />
    );
  }
  const retry = () => void Promise.all([hosts.refetch(), devices.refetch()]);
  return (
    <div className="px-4 py-5 lg:px-6">
      <h1 className="sr-only">Devices</h1>
      {error ? (
        <ErrorState error={error} onRetry={retry} what="The devices could not be loaded" />
      ) : (
        <SkeletonRows label="hosts and devices" rows={10} />
      )}
    </div>
  );
}

interface FleetProps {
  hosts: readonly Host[];
  devices: readonly Device[];
  banner: ReactNode;
}

function Fleet({ hosts, devices, banner }: FleetProps) {
  const { show, platform, sel } = route.useSearch();
  const navigate = route.useNavigate();
  const select = (next: string | undefined) =>
    void navigate({ search: (old) => ({ ...old, sel: next === sel ? undefined : next }), replace: true });
  const adding = useAddHost(hosts);
  const selection = findSelection(sel, hosts, devices);
  const shown = useMemo(
    () => devices.filter((device) => isShown(device, show, platform)),
    [devices, show, platform],
  );
  return (
    <div className="flex min-w-0 flex-1">
      <div className="min-w-0 flex-1 space-y-8 px-4 py-5 lg:px-6">
        <h1 className="sr-only">Devices</h1>
        {banner}
        {adding.dialog}
        {hosts.length === 0 ? (
          <NoHosts add={adding.button} />
        ) : (
          <>
            <Section
              aside={<FilterBar devices={devices} />}
              note={
                shown.length === devices.length
                  ? formatInteger(devices.length)
                  : `${formatInteger(shown.length)} of ${formatInteger(devices.length)}`
              }
              title="Devices"
            >
              <DeviceMap devices={shown} hosts={hosts} onSelect={select} selected={sel} />
            </Section>
            <Section aside={adding.button} note={count(hosts.length, "machine")} title="Hosts">
              <div className="space-y-3 pt-3">
                {hosts.map((host) => (
                  <HostWarnings host={host} key={host.id} named />
                ))}
                <HostTable hosts={hosts} onSelect={select} selected={sel} />
              </div>
            </Section>
          </>
        )}
      </div>
      {selection && <Inspector onClose={() => select(undefined)} selection={selection} />}
    </div>
  );
}

function NoHosts({ add }: { add: ReactNode }) {
  return (
    <>
      <EmptyState snippet="drumline up" title="No worker has registered, so there is no device.">
        Start one on this machine. It counts its GPUs, or simulates CPU devices where there is none.
      </EmptyState>
      {add}
    </>
  );
}
