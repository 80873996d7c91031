import { Link } from "@tanstack/react-router";
import type { Why } from "@/api/schema";
import { formatUtc, shortId } from "@/lib/format";

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
              {cutAt(suggestion.sentence, suggestion.runs).map((part) =>
                suggestion.runs.includes(part) ? <RunId id={part} key={part} /> : part,
              )}
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

/** A sentence in pieces: the ids that it names, and what stands between them. */
function cutAt(sentence: string, ids: readonly string[]): string[] {
  return ids.reduce<string[]>(
    (parts, id) =>
      parts.flatMap((part) => {
        const at = part.indexOf(id);
        return at < 0 ? [part] : [part.slice(0, at), id, part.slice(at + id.length)];
      }),
    [sentence],
  );
}

function RunId({ id }: { id: string }) {
  return (
    <Link className="link" params={{ runId: id }} title={id} to="/runs/$runId/placement">
      <code>{shortId(id)}</code>
    </Link>
  );
}

function plain(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
