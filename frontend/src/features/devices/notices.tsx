import type { Host } from "@/api/schema";

/** What a host's worker found that should be mended, and how; the host takes runs all the same. */
export function HostNotices({ host, named = false }: { host: Host; named?: boolean }) {
  return host.notices.map((notice) => (
    <div className="border-warn border-l-2 pl-3" key={`${notice.code} ${notice.message}`} role="note">
      <p>
        {named && <span className="font-strong">{host.name}: </span>}
        {notice.message}
      </p>
      {notice.fix && <p className="text-muted">{notice.fix}</p>}
    </div>
  ));
}
