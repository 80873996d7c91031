import { Link } from "@tanstack/react-router";
import type { JsonValue, Why } from "@/api/schema";
import { formatDuration, formatUtc, nameSome, secondsBetween, shortId } from "@/lib/format";
import { useNow } from "@/lib/now";

/** The rule that blocks a run that waits or would, what was seen, and what would let it start. */
export function Waiting({ why }: { why: Why }) {
  const evidence = Object.entries(why.evidence ?? {});
  const runs = why.suggestions.flatMap((suggestion) => suggestion.runs);
  return (
    <div
      className="max-w-3xl border-line-strong border-l-2 py-0.5 pl-4"
      data-rule={why.rule}
      data-testid="run-why"
    >
      <p className="text-pretty">
        {why.sentence}
        {why.position !== null && why.position !== undefined && (
          <>
            {" "}
            <span className="inline-block text-muted">Position {why.position} in the queue.</span>
          </>
        )}
      </p>
      {why.remedy && <p className="text-pretty text-muted">{why.remedy}</p>}
      {why.suggestions.length > 0 && (
        <ul className="mt-2 list-disc pl-4 marker:text-muted" data-testid="run-suggestions">
          {why.suggestions.map(({ kind, sentence }) => (
            <li className="break-words" key={kind}>
              <WithLinks runs={runs} text={sentence} />
            </li>
          ))}
        </ul>
      )}
      {why.starts && <Start runs={runs} starts={why.starts} />}
      {evidence.length > 0 && (
        <p className="mt-2 flex flex-wrap gap-x-4 text-muted text-xs">
          {evidence.map(([name, value]) => (
            <span className="min-w-0 break-words" key={name}>
              {name.replaceAll("_", " ")} <span className="text-text">{plain(value)}</span>
            </span>
          ))}
        </p>
      )}
    </div>
  );
}

/** When it is expected to start; a moment that has passed, also while one looks, is told as overdue. */
function Start({ starts, runs }: { starts: NonNullable<Why["starts"]>; runs: readonly string[] }) {
  const now = useNow();
  const at = starts.at && Date.parse(starts.at) > now ? starts.at : null;
  const over = starts.at ? secondsBetween(starts.at, null, now) : starts.overdue_s;
  return (
    <p className="mt-2 text-muted">
      Expected to start{" "}
      {at ? (
        <>
          at <time dateTime={at}>{formatUtc(at)}</time>
        </>
      ) : (
        <>by now, {formatDuration(over)} over</>
      )}
      , by <WithLinks runs={runs} text={starts.basis} />.
    </p>
  );
}

/** A sentence in which the runs that it names are links. */
function WithLinks({ text, runs }: { text: string; runs: readonly string[] }) {
  return cutAt(text, runs).map((part) => (runs.includes(part) ? <RunId id={part} key={part} /> : part));
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
    <Link className="link" params={{ runId: id }} title={id} to="/runs/$runId/metrics">
      <code>{shortId(id)}</code>
    </Link>
  );
}

/** What was seen, as one reads it: `alpha and beta`, `alpha 3`; moments as everywhere. */
function plain(value: JsonValue): string {
  if (Array.isArray(value)) return nameSome(value.map(plain));
  if (typeof value === "string") return isMoment(value) ? formatUtc(value) : value;
  if (value === null || typeof value !== "object") return String(value);
  return Object.entries(value)
    .map(([name, each]) => `${name} ${plain(each)}`)
    .join(", ");
}

function isMoment(text: string): boolean {
  return /^\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)$/.test(text) && !Number.isNaN(Date.parse(text));
}
