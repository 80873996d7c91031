/** Labels as one line of text: `team=vision note="two words"`. A value in quotes is a JSON string. */

const PAIR = /([^\s,="]+)=("(?:[^"\\]|\\.)*"|[^\s,"]+)(?=[\s,]|$)[\s,]*/y;

export function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${/^[^\s,"]+$/.test(value) ? value : JSON.stringify(value)}`)
    .join(" ");
}

/** Throws with the first part that is no label. */
export function parseLabels(text: string): Record<string, string> {
  const pairs: [string, string][] = [];
  const line = text.replace(/^[\s,]+/, "");
  for (let at = 0; at < line.length; at = PAIR.lastIndex) {
    PAIR.lastIndex = at;
    const [, name, value] = PAIR.exec(line) ?? [];
    if (!name || !value)
      throw new Error(
        `${line.slice(at).split(/[\s,]/, 1)[0]} is not of the form name=value or name="two words"`,
      );
    pairs.push([name, unquote(value)]);
  }
  return Object.fromEntries(pairs);
}

function unquote(value: string): string {
  if (!value.startsWith('"')) return value;
  try {
    return JSON.parse(value) as string;
  } catch {
    throw new Error(`${value} is not quoted as JSON is`);
  }
}
