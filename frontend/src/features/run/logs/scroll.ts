export const LINE_HEIGHT = 18;
/** Browsers cut an element's height (Firefox near 17.9 million pixels); above this the scroll position is scaled. */
export const MAX_SCROLL_HEIGHT = 16_200_000;

/** What a scroll position shows. */
interface Viewport {
  /** First line to draw, from 1. */
  first: number;
  /** How many lines to draw. */
  count: number;
  /** Pixels of the first line that lie above the edge. */
  offset: number;
  /** The position is at the very end: draw from the last line upwards. */
  atEnd: boolean;
}

/** Height of the scrolled content for so many lines. */
export function scrollHeight(lines: number): number {
  return Math.min(MAX_SCROLL_HEIGHT, lines * LINE_HEIGHT);
}

export function viewportAt(scrollTop: number, height: number, lines: number): Viewport {
  const fitting = Math.ceil(height / LINE_HEIGHT) + 1;
  const room = scrollHeight(lines) - height;
  const position = room > 0 ? (Math.min(scrollTop, room) / room) * (lines * LINE_HEIGHT - height) : 0;
  const first = Math.max(1, Math.floor(position / LINE_HEIGHT) + 1);
  const atEnd = room <= 0 || scrollTop >= room - 1;
  return {
    first,
    count: Math.min(fitting, lines - first + 1),
    offset: position % LINE_HEIGHT,
    atEnd: atEnd && room > 0,
  };
}

/** Scroll position that puts `line` a third of the way down. */
export function scrollTopFor(line: number, height: number, lines: number): number {
  const room = scrollHeight(lines) - height;
  const wanted = (line - 1) * LINE_HEIGHT - height / 3;
  const whole = lines * LINE_HEIGHT - height;
  return room > 0 ? Math.max(0, Math.min(room, (wanted / whole) * room)) : 0;
}
