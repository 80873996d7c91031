import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, type PointerEvent, useMemo, useRef, useState } from "react";
import type { TimeLane, TimePiece } from "@/api/schema";
import { colorOf, NAMES } from "@/components/ledger/names";
import { Legend } from "@/components/ledger/time-bar";
import { Button } from "@/components/ui/button";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { formatDuration } from "@/lib/format";
import { attemptsOf, blocksOf, pieceAt, type Range, sentenceOf, ticksOf, within, zoomed } from "./model";
import { lanesQuery } from "./queries";

const route = getRouteApi("/runs/$runId/time");
const TICKS = 6;
/** A press that moves less than this share of the width chooses nothing. */
const LEAST_DRAG = 0.005;

interface TimelineProps {
  runId: string;
  total: number;
  ended: boolean;
}

/** What did each place of its gang do, and when? */
export function Timeline({ runId, total, ended }: TimelineProps) {
  const { from, to } = route.useSearch();
  const navigate = useNavigate({ from: "/runs/$runId/time" });
  const pages = useInfiniteQuery(lanesQuery(runId, { from, to }, ended));
  const lanes = pages.data?.pages.flatMap((page) => page.items) ?? [];
  const range = { from: from ?? 0, to: Math.max(to ?? total, (from ?? 0) + 0.01) };
  const show = (seen: Range | undefined) =>
    void navigate({ search: { from: seen?.from, to: seen?.to }, replace: true });
  const zoom = (factor: number) => show(zoomed(range, factor, total));
  return (
    <Section
      aside={
        <>
          <Button compact onClick={() => zoom(0.5)}>
            Zoom in
          </Button>
          <Button compact disabled={from === undefined} onClick={() => zoom(2)}>
            Zoom out
          </Button>
          <Button compact disabled={from === undefined} onClick={() => show(undefined)}>
            Whole run
          </Button>
        </>
      }
      title="Timeline"
    >
      {!pages.data && pages.error && (
        <ErrorState
          error={pages.error}
          onRetry={() => void pages.refetch()}
          what="The timeline could not be loaded"
        />
      )}
      {!pages.data && !pages.error && <SkeletonRows label="the timeline" rows={3} />}
      {lanes.length > 0 && (
        <Lanes lanes={lanes} onRange={(seen) => show(within(seen, total))} range={range} />
      )}
      {pages.hasNextPage && (
        <Button
          className="mt-3"
          compact
          disabled={pages.isFetchingNextPage}
          onClick={() => void pages.fetchNextPage()}
        >
          Show more
        </Button>
      )}
    </Section>
  );
}

interface LanesProps {
  lanes: readonly TimeLane[];
  range: Range;
  onRange: (range: Range) => void;
}

/** A moment of one lane, which the words above are about. */
interface Cursor {
  rank: number;
  at: number;
}

const GRID = "grid grid-cols-[3.5rem_minmax(0,1fr)] gap-x-3";

function Lanes({ lanes, range, onRange }: LanesProps) {
  const [cursor, setCursor] = useState<Cursor>();
  const used = useMemo(() => namesOf(lanes), [lanes]);
  const lane = lanes.find(({ rank }) => rank === cursor?.rank);
  const piece = cursor && lane && pieceAt(lane.pieces, cursor.at);
  const place = (at: number) => `${(100 * (at - range.from)) / (range.to - range.from)}%`;
  return (
    <div className="pt-3" data-testid="timeline">
      <p className="h-10 overflow-hidden text-pretty text-muted sm:h-5 sm:truncate" data-testid="moment">
        {piece ? `Rank ${cursor.rank}, ${sentenceOf(piece)}` : "Drag over a part to enlarge it."}
      </p>
      <div className={`${GRID} text-2xs text-muted`}>
        <span />
        <div className="relative h-5 overflow-hidden">
          {attemptsOf(lanes)
            .filter(({ begin, end }) => end > range.from && begin < range.to)
            .map(({ number, begin, end }) => (
              <span
                className="absolute top-0 h-full truncate border-line-strong border-l pl-1"
                key={number}
                style={{
                  left: place(Math.max(begin, range.from)),
                  width: `${(100 * (Math.min(end, range.to) - Math.max(begin, range.from))) / (range.to - range.from)}%`,
                }}
              >
                attempt {number}
              </span>
            ))}
        </div>
      </div>
      <div className="space-y-1">
        {lanes.map((each) => (
          <Lane
            cursor={each.rank === cursor?.rank ? cursor.at : undefined}
            key={each.rank}
            lane={each}
            onCursor={(at) => setCursor({ rank: each.rank, at })}
            onRange={onRange}
            range={range}
          />
        ))}
      </div>
      <div className={`${GRID} pb-3 text-2xs text-muted`}>
        <span />
        <div className="relative h-5 overflow-hidden">
          {ticksOf(range, TICKS).map((at) => (
            <span
              className="absolute top-0 whitespace-nowrap border-line-strong border-l pt-1 pl-1"
              key={at}
              style={{ left: place(at) }}
            >
              {formatDuration(at)}
            </span>
          ))}
        </div>
      </div>
      <Legend names={used} />
    </div>
  );
}

function namesOf(lanes: readonly TimeLane[]) {
  const used = new Set(lanes.flatMap(({ pieces }) => pieces.flatMap(({ spent }) => Object.keys(spent))));
  return NAMES.filter((name) => used.has(name));
}

interface LaneProps {
  lane: TimeLane;
  range: Range;
  cursor: number | undefined;
  onCursor: (at: number) => void;
  onRange: (range: Range) => void;
}

function Lane({ lane, range, cursor, onCursor, onRange }: LaneProps) {
  const box = useRef<HTMLDivElement>(null);
  const [drag, setDrag] = useState<Range>();
  const span = range.to - range.from;
  const momentOf = (event: PointerEvent) => {
    const { left, width } = (box.current as HTMLDivElement).getBoundingClientRect();
    return range.from + span * Math.min(1, Math.max(0, (event.clientX - left) / width));
  };
  const at = cursor ?? range.from;
  const piece = pieceAt(lane.pieces, at);
  const onKeyDown = (event: KeyboardEvent) => {
    const next = neighbour(lane.pieces, at, event.key);
    if (!next) return;
    event.preventDefault();
    onCursor(next.begin_s);
  };
  return (
    <div className={GRID}>
      <span className="self-center truncate text-muted text-xs">rank {lane.rank}</span>
      <div
        aria-label={`Time of rank ${lane.rank}`}
        aria-valuemax={range.to}
        aria-valuemin={range.from}
        aria-valuenow={at}
        aria-valuetext={piece ? sentenceOf(piece) : "nothing"}
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
        <Blocks pieces={lane.pieces} range={range} />
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

/** The piece that a key leads to from the one at `at`. */
function neighbour(pieces: readonly TimePiece[], at: number, key: string): TimePiece | undefined {
  const here = pieces.findIndex((piece) => at < piece.end_s);
  if (key === "ArrowRight") return pieces[here + 1];
  if (key === "ArrowLeft") return pieces[here - 1];
  if (key === "Home") return pieces[0];
  return key === "End" ? pieces.at(-1) : undefined;
}

const HIGH = 100;
const WIDE = 10_000;

function Blocks({ pieces, range: { from, to } }: { pieces: readonly TimePiece[]; range: Range }) {
  const blocks = useMemo(() => blocksOf(pieces, { from, to }), [pieces, from, to]);
  return (
    <svg
      aria-hidden
      className="absolute inset-0 size-full"
      preserveAspectRatio="none"
      shapeRendering="crispEdges"
      viewBox={`0 0 ${WIDE} ${HIGH}`}
    >
      {blocks.map((block) => (
        <rect
          height={block.height * HIGH}
          key={`${block.x} ${block.name}`}
          style={{ fill: colorOf(block.name) }}
          width={block.width * WIDE}
          x={block.x * WIDE}
          y={block.y * HIGH}
        />
      ))}
    </svg>
  );
}
