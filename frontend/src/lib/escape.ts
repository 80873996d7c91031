/** A stretch of text, or one character shown by its code because it would act or mislead. */
interface Piece {
  text: string;
  escaped: boolean;
}

// C0 and C1 controls but tab, DEL, bidirectional controls, line separators, invisible joiners and lone surrogates.
const ACTING =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: finding control characters is what this is for
  /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Splits text at characters that must not reach the page as they are. */
export function escapePieces(text: string): Piece[] {
  const pieces: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(ACTING)) {
    if (match.index > from) pieces.push({ text: text.slice(from, match.index), escaped: false });
    pieces.push({ text: codeOf(match[0]), escaped: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from), escaped: false });
  return pieces;
}

function codeOf(character: string): string {
  const code = character.charCodeAt(0);
  return code < 0x100
    ? `\\x${code.toString(16).padStart(2, "0")}`
    : `\\u${code.toString(16).padStart(4, "0")}`;
}
