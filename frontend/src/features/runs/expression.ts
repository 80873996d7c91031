/** The text above the list: words and `key:value`, or an expression of the filter language (docs/design/lists.md). */

const OPERATOR = /[<>=~]|(^|[\s(])(not|and|or|in)([\s(]|$)|^(starred|archived|note)$/i;
const KEYS = /(^|\s)(state|job|version|owner|batch|label):\S/;

/** Whether the text compares something: then the server reads it, and says what is wrong with it. */
export function isExpression(text: string): boolean {
  return OPERATOR.test(text.trim()) && !KEYS.test(text);
}

/** The name of a field that is being typed at `caret`: its beginning there and its text so far; null inside of a value. */
export function nameAt(text: string, caret: number): { at: number; name: string } | null {
  const before = text.slice(0, caret);
  const name = /[^\s()<>=!~,'"]*$/.exec(before)?.[0] ?? "";
  const ahead = before.slice(0, before.length - name.length);
  if (!name || /[<>=~,]\s*$/.test(ahead) || /\bin\s*\([^)]*$/i.test(ahead) || quoteIsOpen(ahead)) return null;
  return /^(and|or|not|in)$/i.test(name) ? null : { at: ahead.length, name };
}

function quoteIsOpen(text: string): boolean {
  return (
    /^(?:[^"']|"[^"]*"|'[^']*')*["'][^"']*$/.test(text) &&
    text.replace(/"[^"]*"|'[^']*'/g, "").search(/["']/) >= 0
  );
}

/** An expression with one more condition. */
export function andAlso(where: string | undefined, condition: string): string {
  if (!where) return condition;
  return /\bor\b/i.test(where) ? `(${where}) and ${condition}` : `${where} and ${condition}`;
}

/** The sort after a click on a column: by it, the other way round, and as it was before. */
export function nextSort(sort: string | undefined, name: string): string | undefined {
  if (sort === name) return `-${name}`;
  return sort === `-${name}` ? undefined : name;
}

/** Both kinds of filter and the URL's further settings as one expression, for what takes only that. */
export function wholeExpression(query: {
  readonly where?: string | undefined;
  readonly state?: readonly string[] | undefined;
  readonly job?: string | undefined;
  readonly version?: number | undefined;
  readonly owner?: string | undefined;
  readonly batch?: string | undefined;
  readonly label?: readonly string[] | undefined;
  readonly q?: string | undefined;
}): string {
  const parts = [
    query.state?.length && `state in (${query.state.join(", ")})`,
    query.job && `job = ${quoted(query.job)}`,
    query.version && `version = ${query.version}`,
    query.owner && `owner = ${quoted(query.owner)}`,
    query.batch && `batch = ${quoted(query.batch)}`,
    ...(query.label ?? []).map((label) => {
      const at = label.indexOf("=");
      return `labels.${quoted(label.slice(0, at))} = ${quoted(label.slice(at + 1))}`;
    }),
    query.q && `(job ~ ${quoted(query.q)} or id ~ ${quoted(query.q)})`,
  ].filter(Boolean) as string[];
  return parts.reduce((whole, part) => andAlso(whole, part), query.where ?? "");
}

function quoted(text: string): string {
  return `"${text.replace(/\\/g, "\\\\").replace(/"/g, '\\"')}"`;
}
