import { formatInteger } from "@/lib/format";

interface ProgressRuleProps {
  step: number | null | undefined;
  total: number | null | undefined;
  /** Whether it still moves; what has ended is drawn without the colour of activity. */
  live: boolean;
}

/** Steps done of all as a thin ruler with the numbers; without a total only the number of steps. */
export function ProgressRule({ step, total, live }: ProgressRuleProps) {
  if (step === null || step === undefined) return <span className="text-muted">–</span>;
  if (!total) {
    return (
      <span className="whitespace-nowrap text-xs">
        <span className="text-muted">step</span> {formatInteger(step)}
      </span>
    );
  }
  const share = Math.min(1, step / total);
  return (
    <span className="inline-flex h-5 items-center gap-2.5 align-top">
      <svg aria-hidden="true" className="h-1.5 w-16" preserveAspectRatio="none" viewBox="0 0 100 6">
        <rect fill="var(--line)" height="6" width="100" />
        <rect fill={live ? "var(--active)" : "var(--line-strong)"} height="6" width={share * 100} />
      </svg>
      <span className="whitespace-nowrap text-xs">
        {formatInteger(step)}
        <span className="text-muted"> / {formatInteger(total)}</span>
      </span>
    </span>
  );
}
