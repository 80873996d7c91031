/** What the server keeps of a name. */
const MOST_CHARACTERS = 80;

/** Why a view cannot be saved under the name as it was typed; null where it can. */
export function viewNameFlaw(typed: string): string | null {
  const name = typed.trim();
  if (name === "") return "A view needs a name that is not blank.";
  if (name.includes("/"))
    return 'A name has no "/": it would part the address of the view. Use "-" or ":" instead.';
  // A browser takes such a part of an address for a direction.
  if (name === "." || name === "..") return `"${name}" is no name: add a letter or a digit.`;
  const over = [...name].length - MOST_CHARACTERS;
  return over > 0 ? `A name has at most ${MOST_CHARACTERS} characters: this one has ${over} too many.` : null;
}
