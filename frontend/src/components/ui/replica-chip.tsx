import { hatchOf, REPLICA_COLORS } from "@/lib/replica-colors";

/** A replica's number in its colour; the hatch tells apart the replicas that share one (each eight). */
export function ReplicaChip({ replica, size = 14 }: { replica: number; size?: number }) {
  const hatch = hatchOf(replica);
  return (
    <span className="inline-flex h-5 items-center gap-1.5 whitespace-nowrap align-top">
      <svg aria-hidden="true" className="shrink-0" height={size} viewBox="0 0 14 14" width={size}>
        <rect
          fill={`var(${REPLICA_COLORS[replica % REPLICA_COLORS.length]})`}
          height="14"
          rx="2"
          width="14"
        />
        {hatch !== 0 && (
          <path
            d={hatch === 1 ? "M0 9 9 0M5 14 14 5" : hatch === 2 ? "M0 5 9 14M5 0 14 9" : "M0 4.5h14M0 9.5h14"}
            stroke="var(--bg)"
            strokeWidth="1.5"
          />
        )}
      </svg>
      <span>
        <span className="sr-only">replica </span>
        {replica}
      </span>
    </span>
  );
}
