import type { Host } from "@/api/schema";

/** What makes the machine on which it runs a host; the token goes by a descriptor, so that no `ps` shows it. */
export function enrolCommand(server: string, secret: string): string {
  return `drumline worker run --server ${server} --enroll-fd 3 3<<<'${secret}'`;
}

/** The host that registered since `known` was written down, as `id registered_at` each. */
export function findNewHost(hosts: readonly Host[], known: readonly string[]): Host | undefined {
  return hosts.find((host) => !known.includes(`${host.id} ${host.registered_at}`));
}
