/** Draws many charts over several frames, so that no frame waits for all of them. */

/** What a frame may spend on drawing, in ms: the rest of its 16 belongs to the page. */
const BUDGET_MS = 6;

const waiting = new Map<object, () => void>();
let frame = 0;

/** Runs `draw` in one of the next frames; what was waiting for the same `owner` is replaced. */
export function queueDraw(owner: object, draw: () => void): void {
  waiting.delete(owner);
  waiting.set(owner, draw);
  if (frame === 0) frame = requestAnimationFrame(drawSome);
}

export function dropDraw(owner: object): void {
  waiting.delete(owner);
}

function drawSome(): void {
  frame = 0;
  const start = performance.now();
  for (const [owner, draw] of waiting) {
    waiting.delete(owner);
    draw();
    if (performance.now() - start >= BUDGET_MS) break;
  }
  if (waiting.size > 0) frame = requestAnimationFrame(drawSome);
}
