import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { api, body } from "@/api/client";
import { hostsQuery, keys } from "@/api/queries";
import type { Batch, Job } from "@/api/schema";
import { Icon } from "@/components/ui/icons";
import { count, shortId } from "@/lib/format";
import { Group, Item } from "./palette-items";

/** Jobs, sweeps and hosts whose name holds what is typed. */
export function Things({
  search,
  onChoose,
}: {
  search: string;
  onChoose: (action: () => unknown) => () => void;
}) {
  const navigate = useNavigate();
  const jobs = useQuery(jobsFound(search));
  const sweeps = useQuery(sweepsFound(search));
  const hosts = useQuery(hostsQuery);
  if (!search) return null; // the runs stand first
  return (
    <>
      <Group heading="Jobs">
        {matching(jobs.data, search, ({ name }) => name).map(({ name }) => (
          <Item
            key={name}
            onSelect={onChoose(() => navigate({ to: "/jobs/$name", params: { name } }))}
            value={`job ${name}`}
          >
            <Icon className="text-muted" name="jobs" />
            <span className="truncate">{name}</span>
          </Item>
        ))}
      </Group>
      <Group heading="Sweeps">
        {matching(sweeps.data, search, ({ id, name }) => `${name} ${id} ${shortId(id)}`).map(
          ({ id, name, size }) => (
            <Item
              key={id}
              onSelect={onChoose(() => navigate({ to: "/batches/$batchId", params: { batchId: id } }))}
              keywords={[shortId(id)]}
              value={`sweep ${name} ${id}`}
            >
              <Icon className="text-muted" name="batches" />
              <span className="truncate">{name || "No name"}</span>
              <span className="text-muted">{count(size, "run")}</span>
              <code className="ml-auto text-muted">{shortId(id)}</code>
            </Item>
          ),
        )}
      </Group>
      <Group heading="Hosts">
        {matching(hosts.data, search, ({ name }) => name).map((host) => (
          <Item
            key={host.id}
            onSelect={onChoose(() => navigate({ to: "/devices", search: { sel: `host:${host.id}` } }))}
            value={`host ${host.name}`}
          >
            <Icon className="text-muted" name="devices" />
            <span className="truncate">{host.name}</span>
            <span className="ml-auto text-muted text-xs">
              {host.free_devices} of {count(host.devices, "device")} free
            </span>
          </Item>
        ))}
      </Group>
    </>
  );
}

const SHOWN = 5;

/** What the server finds among all jobs; what was found before stands until then, and is filtered meanwhile. */
const jobsFound = (q: string) => ({
  queryKey: [...keys.jobs, "palette", q],
  enabled: q !== "",
  placeholderData: (old: Job[] | undefined) => old,
  queryFn: async ({ signal }: { signal: AbortSignal }) =>
    (await body(api.GET("/api/v1/jobs", { params: { query: { q, limit: SHOWN } }, signal }))).items,
});

const sweepsFound = (q: string) => ({
  queryKey: [...keys.batches, "palette", q],
  enabled: q !== "",
  placeholderData: (old: Batch[] | undefined) => old,
  queryFn: async ({ signal }: { signal: AbortSignal }) =>
    (await body(api.GET("/api/v1/batches", { params: { query: { q, limit: SHOWN } }, signal }))).items,
});

function matching<Thing>(
  things: readonly Thing[] | undefined,
  search: string,
  text: (thing: Thing) => string,
): readonly Thing[] {
  const wanted = search.toLowerCase();
  return (things ?? []).filter((thing) => text(thing).toLowerCase().includes(wanted)).slice(0, SHOWN);
}
