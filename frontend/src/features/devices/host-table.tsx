import type { Host } from "@/api/schema";
import { Age } from "@/components/runs/run-columns";
import { type Column, DataTable } from "@/components/ui/data-table";
import { StateBadge } from "@/components/ui/state-badge";
import { formatBytes } from "@/lib/format";

interface HostTableProps {
  hosts: readonly Host[];
  selected: string | undefined;
  onSelect: (sel: string | undefined) => void;
}

/** The machines, with what a person asks first: alive, how much is free, how old the software is. */
export function HostTable({ hosts, selected, onSelect }: HostTableProps) {
  const columns: Column<Host>[] = [
    { id: "state", header: "State", cell: (host) => <StateBadge state={host.state} />, className: "w-24" },
    {
      id: "name",
      header: "Host",
      cell: (host) => (
        <button
          className="font-strong hover:underline"
          onClick={() => onSelect(`host:${host.id}`)}
          type="button"
        >
          {host.name}
        </button>
      ),
    },
    {
      id: "platforms",
      header: "Platform",
      cell: (host) => `${host.platforms.join(", ")}${host.simulated_devices > 0 ? ", simulated" : ""}`,
      className: "max-sm:hidden",
    },
    {
      id: "free",
      header: "Free",
      cell: (host) => (
        <>
          {host.free_devices}
          <span className="text-muted"> of {host.devices}</span>
        </>
      ),
      align: "right",
    },
    {
      id: "runs",
      header: "Runs",
      cell: (host) => host.runs.length,
      align: "right",
      className: "max-sm:hidden",
    },
    {
      id: "cpus",
      header: "CPUs",
      cell: (host) => host.cpu_count,
      align: "right",
      className: "max-lg:hidden",
    },
    {
      id: "memory",
      header: "Memory",
      cell: (host) => formatBytes(host.memory_bytes),
      align: "right",
      className: "max-lg:hidden",
    },
    {
      id: "jax",
      header: "JAX",
      cell: (host) => host.jax_version,
      align: "right",
      className: "max-md:hidden",
    },
    {
      id: "version",
      header: "Worker",
      cell: (host) => host.version,
      align: "right",
      className: "max-md:hidden",
    },
    {
      id: "heard",
      header: "Last heard of",
      cell: (host) => <Age moment={host.last_heartbeat_at} />,
      align: "right",
      className: "max-sm:hidden",
    },
  ];
  return (
    <DataTable
      columns={columns}
      keyboard
      label="Hosts"
      onRowClick={(host) => onSelect(`host:${host.id}`)}
      rowKey={(host) => `host:${host.id}`}
      rows={hosts}
      selected={selected}
    />
  );
}
