import type { Gap } from "@/api/schema";
import { count, formatBytes } from "@/lib/format";

/** What is lost of one kind: records and bytes, as far as either is known. */
interface Loss {
  records: number;
  bytes: number;
}

export type Lost = ReadonlyMap<Gap["what"], Loss>;

export function lostOf(gaps: readonly Pick<Gap, "what" | "count" | "size_bytes">[]): Lost {
  const lost = new Map<Gap["what"], Loss>();
  for (const gap of gaps) {
    const known = lost.get(gap.what) ?? { records: 0, bytes: 0 };
    lost.set(gap.what, {
      records: known.records + (gap.count ?? 0),
      bytes: known.bytes + (gap.size_bytes ?? 0),
    });
  }
  return lost;
}

const RECORDS: Record<string, [one: string, many: string]> = {
  metrics: ["logged value", "logged values"],
  reduction: ["reduction", "reductions"],
  media: ["media value", "media values"],
  profile: ["traced step", "traced steps"],
  artifact: ["artifact", "artifacts"],
  spool: ["record of any kind", "records of any kind"],
};

/** What a view must own up to: what is lost of its own kind, and what was lost whatever it was. */
export function gapSentence(lost: Lost, what: Gap["what"]): string | null {
  const parts = ([what, "spool"] as const).flatMap((kind) => {
    const loss = lost.get(kind);
    return loss ? [kind === "log" ? lostOutput(loss) : lostRecords(kind, loss)] : [];
  });
  return parts.length > 0 ? `${parts.join("; ")}.` : null;
}

function lostOutput({ bytes }: Loss): string {
  return bytes > 0 ? `${formatBytes(bytes)} of output lost` : "Output of unknown size lost";
}

function lostRecords(kind: string, { records, bytes }: Loss): string {
  const [one, many] = RECORDS[kind] ?? ["record", "records"];
  const size = bytes > 0 ? ` (${formatBytes(bytes)})` : "";
  return records > 0 ? `${count(records, one, many)}${size} lost` : `An unknown number of ${many} lost`;
}
