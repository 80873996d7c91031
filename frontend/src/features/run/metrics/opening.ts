/** So many charts stand open at first: further groups wait for a press. */
const MOST_NAMES = 60;

/** Which groups are open unless a person says otherwise: those of few charts, as far as they are few together, and speed. */
export function opensByItself(groups: readonly { group: string; names: number }[]): Set<string> {
  const open = new Set<string>();
  let sum = 0;
  for (const { group, names } of groups) {
    if (groups.length > 1 && sum + names > MOST_NAMES && group !== "sys") continue;
    sum += names;
    open.add(group);
  }
  return open;
}
