import type { Glyph } from "./paint";

/** The strategy's sign in a square of 16 pixels: the same shapes as in lists. */
export function drawGlyph(
  context: CanvasRenderingContext2D,
  glyph: Glyph,
  x: number,
  y: number,
  ink: string,
): void {
  if (!glyph) return;
  context.save();
  context.translate(x, y);
  context.strokeStyle = ink;
  context.fillStyle = ink;
  context.lineWidth = 1.2;
  context.lineJoin = "round";
  context.beginPath();
  SHAPES[glyph](context);
  context.restore();
}

const SHAPES: Record<Exclude<Glyph, null>, (context: CanvasRenderingContext2D) => void> = {
  sheets: (context) => {
    context.roundRect(2, 6.5, 7.5, 7.5, 1);
    context.moveTo(4.5, 4.3);
    context.lineTo(11.7, 4.3);
    context.lineTo(11.7, 11.5);
    context.moveTo(7, 2);
    context.lineTo(14, 2);
    context.lineTo(14, 9);
    context.stroke();
  },
  cylinder: (context) => {
    context.ellipse(8, 4, 5, 2, 0, 0, 2 * Math.PI);
    context.moveTo(3, 4);
    context.lineTo(3, 12);
    context.ellipse(8, 12, 5, 2, 0, Math.PI, 0, true);
    context.lineTo(13, 4);
    context.moveTo(3, 8);
    context.ellipse(8, 8, 5, 2, 0, Math.PI, 0, true);
    context.stroke();
  },
  dot: (context) => {
    context.arc(8, 8, 3, 0, 2 * Math.PI);
    context.fill();
  },
};
