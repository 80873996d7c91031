/** A range of lines, both ends included. */
export interface LineRange {
  from: number;
  to: number;
}

/** Reads `#L120` or `#L120-L180`, with or without the `#`; `null` for anything else. */
export function parseRange(hash: string): LineRange | null {
  const match = /^#?L(\d{1,15})(?:-L?(\d{1,15}))?$/.exec(hash);
  if (!match) return null;
  const [a, b] = [Number(match[1]), Number(match[2] ?? match[1])];
  return a >= 1 && b >= 1 ? { from: Math.min(a, b), to: Math.max(a, b) } : null;
}

/** `L120` or `L120-L180`, as it stands after the `#`. */
export function formatRange({ from, to }: LineRange): string {
  return from === to ? `L${from}` : `L${from}-L${to}`;
}

/** The range after a click on a line number: alone, or stretched from the first end with shift. */
export function extendRange(range: LineRange | null, line: number, stretch: boolean): LineRange {
  if (!stretch || !range) return { from: line, to: line };
  const anchor = line < range.from ? range.to : range.from;
  return { from: Math.min(anchor, line), to: Math.max(anchor, line) };
}
