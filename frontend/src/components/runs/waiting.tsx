import type { Why } from "@/api/schema";
import { formatUtc } from "@/lib/format";

/** The rule that blocks a run that waits or would, what was seen, and what would let it start. */
export function Waiting({ why }: { why: Why }) {
  const evidence = Object.entries(why.evidence ?? {});
  return (
    <div
      className="max-w-3xl border-line-strong border-l-2 py-0.5 pl-4"
      data-rule={why.rule}
      data-testid="run-why"
    >
      <p>
        {why.sentence}
        {why.position !== null && why.position !== undefined && (
          <span className="text-muted"> Position {why.position} in the queue.</span>
        )}
      </p>
      {why.remedy && <p className="text-muted">{why.remedy}</p>}
      {why.suggestions.length > 0 && (
        <ul className="mt-1" data-testid="run-suggestions">
          {why.suggestions.map((suggestion) => (
            <li className="break-words" key={suggestion.kind}>
              {suggestion.sentence}
            </li>
          ))}
        </ul>
      )}
      {why.starts && (
        <p className="text-muted">
          Expected to start at <time dateTime={why.starts.at}>{formatUtc(why.starts.at)}</time>, by{" "}
          {why.starts.basis}.
        </p>
      )}
      {evidence.length > 0 && (
        <p className="mt-1 flex flex-wrap gap-x-4 text-muted text-xs">
          {evidence.map(([name, value]) => (
            <span key={name}>
              {name.replaceAll("_", " ")} <span className="text-text">{plain(value)}</span>
            </span>
          ))}
        </p>
      )}
    </div>
  );
}

function plain(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
