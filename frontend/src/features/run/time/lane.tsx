import { type KeyboardEvent, type PointerEvent, useRef, useState } from "react";
import type { Range } from "./model";

/** A press that moves less than this share of the width chooses nothing. */
const LEAST_DRAG = 0.005;

export const GRID = "grid grid-cols-[3.5rem_minmax(0,1fr)] gap-x-3";

/** A rectangle, in shares of the lane. */
export interface DrawnBlock {
  key: string;
  x: number;
  width: number;
  y: number;
  height: number;
  fill: string;
}

interface LaneProps {
  /** Before the lane. */
  name: string;
  label: string;
  /** Of `cursor`, in words. */
  valueText: string;
  range: Range;
  cursor: number | undefined;
  blocks: readonly DrawnBlock[];
  /** The moment that a key leads to. */
  next: (key: string) => number | undefined;
  onCursor: (at: number) => void;
  onRange: (range: Range) => void;
}

/** A lane of a timeline: its parts as blocks, read by pointer and keyboard, enlarged by a drag. */
export function Lane(props: LaneProps) {
  const { name, label, valueText, range, cursor, blocks, next, onCursor, onRange } = props;
  const box = useRef<HTMLDivElement>(null);
  const [drag, setDrag] = useState<Range>();
  const span = range.to - range.from;
  const momentOf = (event: PointerEvent) => {
    const { left, width } = (box.current as HTMLDivElement).getBoundingClientRect();
    return range.from + span * Math.min(1, Math.max(0, (event.clientX - left) / width));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const at = next(event.key);
    if (at === undefined) return;
    event.preventDefault();
    onCursor(at);
  };
  return (
    <div className={GRID}>
      <span className="self-center truncate text-muted text-xs" title={name}>
        {name}
      </span>
      <div
        aria-label={label}
        aria-valuemax={range.to}
        aria-valuemin={range.from}
        aria-valuenow={cursor ?? range.from}
        aria-valuetext={valueText}
        className="relative h-7 cursor-crosshair touch-pan-y select-none bg-surface"
        onKeyDown={onKeyDown}
        onPointerCancel={() => setDrag(undefined)}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setDrag({ from: momentOf(event), to: momentOf(event) });
        }}
        onPointerMove={(event) => {
          const moment = momentOf(event);
          onCursor(moment);
          if (drag) setDrag({ ...drag, to: moment });
        }}
        onPointerUp={() => {
          if (drag && Math.abs(drag.to - drag.from) > LEAST_DRAG * span)
            onRange({ from: Math.min(drag.from, drag.to), to: Math.max(drag.from, drag.to) });
          setDrag(undefined);
        }}
        ref={box}
        role="slider"
        tabIndex={0}
      >
        <Blocks blocks={blocks} />
        {cursor !== undefined && cursor >= range.from && cursor <= range.to && (
          <span
            className="pointer-events-none absolute inset-y-0 w-px bg-text"
            style={{ left: `${(100 * (cursor - range.from)) / span}%` }}
          />
        )}
        {drag && (
          <span
            className="pointer-events-none absolute inset-y-0 border border-text bg-text/20"
            style={{
              left: `${(100 * (Math.min(drag.from, drag.to) - range.from)) / span}%`,
              width: `${(100 * Math.abs(drag.to - drag.from)) / span}%`,
            }}
          />
        )}
      </div>
    </div>
  );
}

const HIGH = 100;
const WIDE = 10_000;

function Blocks({ blocks }: { blocks: readonly DrawnBlock[] }) {
  return (
    <svg
      aria-hidden
      className="absolute inset-0 size-full"
      preserveAspectRatio="none"
      shapeRendering="crispEdges"
      viewBox={`0 0 ${WIDE} ${HIGH}`}
    >
      {blocks.map(({ key, x, y, width, height, fill }) => (
        <rect
          height={height * HIGH}
          key={key}
          style={{ fill }}
          width={width * WIDE}
          x={x * WIDE}
          y={y * HIGH}
        />
      ))}
    </svg>
  );
}

interface TicksProps {
  range: Range;
  ticks: readonly number[];
  format: (at: number) => string;
}

/** On a phone a moment behind this share of the lane would be cut: its mark stands alone. */
const LAST_SHARE = 0.86;

/** What moments stand under the lanes. */
export function Ticks({ range, ticks, format }: TicksProps) {
  return (
    <div className={`${GRID} pb-3 text-2xs text-muted`}>
      <span />
      <div className="relative h-5 overflow-hidden">
        {ticks.map((at) => {
          const share = (at - range.from) / (range.to - range.from);
          return (
            <span
              className="absolute top-0 h-full whitespace-nowrap border-line-strong border-l pt-1 pl-1"
              key={at}
              style={{ left: `${100 * share}%` }}
            >
              <span className={share > LAST_SHARE ? "max-sm:hidden" : ""}>{format(at)}</span>
            </span>
          );
        })}
      </div>
    </div>
  );
}
