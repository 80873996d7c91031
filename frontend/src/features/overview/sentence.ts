import type { Overview } from "@/api/schema";
import { count, formatInteger, nameSome } from "@/lib/format";

/** The state of everything in one line: what a person wants to know before looking at anything. */
export function overviewSentence(overview: Overview): string {
  const {
    stalled_total: stalled,
    failed_total: failed,
    hosts_silent: silent,
    hosts_failing: failing,
  } = overview;
  const troubles = [
    stalled > 0 && `${count(stalled, "run")} standing still`,
    failed > 0 && count(failed, "failed run"),
    silent > 0 && count(silent, "silent host"),
    failing > 0 && count(failing, "failing host"),
  ].filter((trouble) => trouble !== false);
  if (overview.hosts.length === 0 && troubles.length === 0) return "No worker has registered yet";
  const fleet = `${formatInteger(overview.devices_held)} of ${count(overview.devices_total, "device")} busy`;
  return troubles.length === 0 ? `${fleet}, nothing needs attention` : `${fleet}, ${nameSome(troubles)}`;
}

/** Whether a host needs looking at. */
export function isTroubled(host: Overview["hosts"][number]): boolean {
  return host.state === "suspect" || host.state === "lost" || Boolean(host.trouble);
}
