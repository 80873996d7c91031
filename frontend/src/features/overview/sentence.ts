import type { Overview } from "@/api/schema";
import { count } from "@/lib/format";

/** The state of everything in one line: what a person wants to know before looking at anything. */
export function overviewSentence(overview: Overview): string {
  const stalled = overview.attention.filter((run) => run.stalled_at).length;
  const failed = overview.attention.length - stalled;
  const troubles = [
    stalled > 0 && `${count(stalled, "run")} standing still`,
    failed > 0 && count(failed, "failed run"),
    ...hostTroubles(overview),
  ].filter(Boolean);
  if (overview.hosts.length === 0 && troubles.length === 0) return "No worker has registered yet";
  const fleet = `${overview.devices_held} of ${count(overview.devices_total, "device")} busy`;
  return troubles.length === 0 ? `${fleet}, nothing needs attention` : `${fleet}, ${troubles.join(" and ")}`;
}

function hostTroubles(overview: Overview): string[] {
  const failing = overview.hosts.filter((host) => host.trouble).length;
  const silent = overview.hosts.filter(isTroubled).length - failing;
  return [silent > 0 && count(silent, "silent host"), failing > 0 && count(failing, "failing host")].filter(
    (part) => part !== false,
  );
}

/** Whether a host needs looking at. */
export function isTroubled(host: Overview["hosts"][number]): boolean {
  return host.state === "suspect" || host.state === "lost" || Boolean(host.trouble);
}
