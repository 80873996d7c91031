/** Draws many charts over several frames, so that no frame waits for all of them. */

/** What a frame may spend on drawing again, in ms: the rest of its 16 belongs to the page. */
const BUDGET_MS = 6;
/** And on first pictures: where nothing is seen yet nothing can stutter, and a frame for each is time that all others wait. */
const FIRST_BUDGET_MS = 50;

interface Waiting {
  draw: () => void;
  budget: number;
}

const waiting = new Map<object, Waiting>();
let frame = 0;

/** Runs `draw` in one of the next frames; what was waiting for the same `owner` is replaced. */
export function queueDraw(owner: object, draw: () => void): void {
  queue(owner, { draw, budget: BUDGET_MS });
}

/** The same for what draws its first picture. */
export function queueFirstDraw(owner: object, draw: () => void): void {
  queue(owner, { draw, budget: FIRST_BUDGET_MS });
}

function queue(owner: object, one: Waiting): void {
  waiting.delete(owner);
  waiting.set(owner, one);
  if (frame === 0) frame = requestAnimationFrame(drawSome);
}

export function dropDraw(owner: object): void {
  waiting.delete(owner);
}

function drawSome(): void {
  frame = 0;
  const start = performance.now();
  for (const [owner, { draw, budget }] of waiting) {
    waiting.delete(owner);
    draw();
    if (performance.now() - start >= budget) break;
  }
  if (waiting.size > 0) frame = requestAnimationFrame(drawSome);
}
