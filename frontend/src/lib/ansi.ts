import { escapePieces } from "./escape";

/** A colour by its role; the page maps it to a token of the theme. */
export type Hue = "red" | "green" | "yellow" | "blue" | "magenta" | "cyan" | "muted";

interface Style {
  hue?: Hue;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underline?: boolean;
  inverse?: boolean;
}

export interface Span extends Style {
  text: string;
  /** The text is the code of a character, not output. */
  escaped?: boolean;
}

// A control sequence: parameters, intermediates, final byte (ECMA-48, 5.4).
// biome-ignore lint/suspicious/noControlCharactersInRegex: ESC begins every sequence
const SEQUENCE = /\u001b\[([0-?]*)[ -/]*([@-~])/g;
const BASIC: readonly (Hue | undefined)[] = [
  "muted",
  "red",
  "green",
  "yellow",
  "blue",
  "magenta",
  "cyan",
  undefined,
];
const FLAGS: Record<number, Style> = {
  1: { bold: true },
  2: { dim: true },
  3: { italic: true },
  4: { underline: true },
  7: { inverse: true },
};
const RESETS: Record<number, readonly (keyof Style)[]> = {
  22: ["bold", "dim"],
  23: ["italic"],
  24: ["underline"],
  27: ["inverse"],
  39: ["hue"],
};

/** A line as styled spans: colours become roles, cursor movements vanish, other controls show as codes. */
export function spansOf(line: string): Span[] {
  const spans: Span[] = [];
  let style: Style = {};
  let from = 0;
  for (const match of line.matchAll(SEQUENCE)) {
    push(spans, line.slice(from, match.index), style);
    if (match[2] === "m") style = applyCodes(style, match[1] ?? "");
    from = match.index + match[0].length;
  }
  push(spans, line.slice(from), style);
  return spans;
}

/** The line without sequences, as it is searched and copied. */
export function plainText(line: string): string {
  return line.replace(SEQUENCE, "");
}

/** What stays visible of a line that was rewritten with carriage returns: its last state. */
export function collapseReturns(line: string): string {
  if (!line.includes("\r")) return line;
  const states = line.split("\r").filter((state) => plainText(state).trim() !== "");
  return states.at(-1) ?? "";
}

function push(spans: Span[], text: string, style: Style): void {
  for (const piece of escapePieces(text)) {
    spans.push(piece.escaped ? { text: piece.text, escaped: true } : { text: piece.text, ...style });
  }
}

function applyCodes(style: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let next: Style = { ...style };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 38 || code === 48) {
      const { hue, used } = extendedColor(codes, i + 1);
      if (code === 38) next = withHue(next, hue);
      i += used;
    } else {
      next = withCode(next, code);
    }
  }
  return next;
}

function withCode(style: Style, code: number): Style {
  if (code === 0) return {};
  if (FLAGS[code]) return { ...style, ...FLAGS[code] };
  if (RESETS[code]) return Object.fromEntries(Object.entries(style).filter(([key]) => !isReset(code, key)));
  if (code >= 30 && code <= 37) return withHue(style, BASIC[code - 30]);
  if (code >= 90 && code <= 97) return withHue(style, BASIC[code - 90]);
  return style;
}

function isReset(code: number, key: string): boolean {
  return RESETS[code]?.some((reset) => reset === key) ?? false;
}

function withHue(style: Style, hue: Hue | undefined): Style {
  const { hue: _replaced, ...rest } = style;
  return hue ? { ...rest, hue } : rest;
}

/** `5;n` of the 256 colours or `2;r;g;b`, and how many codes it took. */
function extendedColor(codes: readonly number[], at: number): { hue: Hue | undefined; used: number } {
  const n = codes[at + 1] ?? 0;
  if (codes[at] === 2) return { hue: hueOf(n, codes[at + 2] ?? 0, codes[at + 3] ?? 0), used: 4 };
  if (codes[at] !== 5) return { hue: undefined, used: 1 };
  if (n < 16) return { hue: BASIC[n % 8], used: 2 };
  if (n >= 232) return { hue: n < 244 ? "muted" : undefined, used: 2 };
  const level = (digit: number): number => Math.floor((n - 16) / digit) % 6;
  return { hue: hueOf(level(36) * 51, level(6) * 51, level(1) * 51), used: 2 };
}

function hueOf(red: number, green: number, blue: number): Hue | undefined {
  const [low, high] = [Math.min(red, green, blue), Math.max(red, green, blue)];
  if (high - low < 40) return high < 128 ? "muted" : undefined;
  const [r, g, b] = [red, green, blue].map((channel) => channel > (low + high) / 2);
  if (r && g) return "yellow";
  if (r && b) return "magenta";
  if (g && b) return "cyan";
  if (r) return "red";
  return g ? "green" : "blue";
}
