import type { Host } from "@/api/schema";

/** What a host's worker found that should be mended, and how; the host takes runs all the same. */
export function HostWarnings({ host, named = false }: { host: Host; named?: boolean }) {
  return host.warnings.map((warning) => (
    <div className="border-warn border-l-2 pl-3" key={`${warning.code} ${warning.message}`} role="note">
      <p>
        {named && <span className="font-strong">{host.name}: </span>}
        {warning.message}
      </p>
      {warning.fix && <p className="text-muted">{warning.fix}</p>}
    </div>
  ));
}
