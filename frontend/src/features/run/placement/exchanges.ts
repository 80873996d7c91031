import type { ExchangeTotal, Placement, ProgramExchanges } from "@/api/schema";
import { formatBytes, nameSome } from "@/lib/format";

/** `all-reduce, mean`, as people call it. */
export function exchangeName({ kind, op }: { kind: string; op: string | null }): string {
  const name = kind.replaceAll("_", "-");
  return op ? `${name}, ${op}` : name;
}

export function bytesText({ times, varying, bytes_per_step: bytes }: ExchangeTotal): string {
  if (varying === 0) return formatBytes(bytes);
  return times === 0 ? "depends on values" : `${formatBytes(bytes)} and what depends on values`;
}

const crossingIn = (program: ProgramExchanges) => program.totals.filter((total) => total.crosses_hosts);
const bytesOf = (totals: readonly ExchangeTotal[]) =>
  totals.reduce((sum, total) => sum + total.bytes_per_step, 0);

/** Whether anything crosses between the hosts; null as long as nobody has told. */
export function crossesHosts({ exchanges }: Placement): boolean | null {
  if (exchanges.not_recorded) return null;
  return exchanges.programs.some((program) => crossingIn(program).length > 0);
}

/** What crosses in a step of the program with most of it, in words; empty where nothing does, or nobody has told. */
export function crossingText({ exchanges }: Placement): string {
  const each = exchanges.programs.map(crossingIn).filter((totals) => totals.length > 0);
  const most = each.toSorted((a, b) => bytesOf(b) - bytesOf(a))[0];
  if (!most) return "";
  const kinds = [...new Set(most.map((total) => total.kind.replaceAll("_", "-")))];
  const some = most.some((total) => total.varying > 0) ? "at least " : each.length > 1 ? "up to " : "";
  return `${nameSome(kinds)}, ${some}${formatBytes(bytesOf(most))} a step`;
}
