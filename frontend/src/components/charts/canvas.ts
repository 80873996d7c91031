/** Gives the canvas the page's pixel density and hands back its cleared context in CSS pixels. */
export function fitCanvas(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D | null {
  const density = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * density), Math.round(height * density)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const context = canvas.getContext("2d");
  context?.setTransform(density, 0, 0, density, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Parallel lines over a box: 1 rising, 2 falling, 3 level; 0 draws nothing. */
export function hatch(
  context: CanvasRenderingContext2D,
  box: Box,
  kind: 0 | 1 | 2 | 3,
  ink: string,
  pitch = 7,
): void {
  if (kind === 0) return;
  context.save();
  context.beginPath();
  context.rect(box.x, box.y, box.width, box.height);
  context.clip();
  context.beginPath();
  const reach = box.width + box.height;
  for (let at = pitch / 2; at < reach; at += pitch) {
    if (kind === 3) line(context, box.x, box.y + at, box.x + box.width, box.y + at);
    else if (kind === 1) line(context, box.x, box.y + at, box.x + at, box.y);
    else line(context, box.x + box.width, box.y + at, box.x + box.width - at, box.y);
  }
  context.strokeStyle = ink;
  context.lineWidth = 1;
  context.stroke();
  context.restore();
}

function line(context: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
}
