import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { TimeLane, TimePiece } from "@/api/schema";
import { colorOf, NAMES } from "@/components/ledger/names";
import { Legend } from "@/components/ledger/time-bar";
import { Button } from "@/components/ui/button";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { formatDuration } from "@/lib/format";
import { GRID, Lane, Ticks } from "./lane";
import { attemptsOf, blocksOf, pieceAt, type Range, sentenceOf, ticksOf, within, zoomed } from "./model";
import { lanesQuery } from "./queries";

const route = getRouteApi("/runs/$runId/time");
const TICKS = 6;

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
    void navigate({
      search: (old) => ({ ...old, from: seen?.from, to: seen?.to }),
      replace: true,
      resetScroll: false,
    });
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
          <PieceLane
            cursor={each.rank === cursor?.rank ? cursor.at : undefined}
            key={each.rank}
            lane={each}
            onCursor={(at) => setCursor({ rank: each.rank, at })}
            onRange={onRange}
            range={range}
          />
        ))}
      </div>
      <Ticks format={formatDuration} range={range} ticks={ticksOf(range, TICKS)} />
      <Legend names={used} />
    </div>
  );
}

function namesOf(lanes: readonly TimeLane[]) {
  const used = new Set(lanes.flatMap(({ pieces }) => pieces.flatMap(({ spent }) => Object.keys(spent))));
  return NAMES.filter((name) => used.has(name));
}

interface PieceLaneProps {
  lane: TimeLane;
  range: Range;
  cursor: number | undefined;
  onCursor: (at: number) => void;
  onRange: (range: Range) => void;
}

function PieceLane({ lane, range: { from, to }, cursor, onCursor, onRange }: PieceLaneProps) {
  const blocks = useMemo(
    () =>
      blocksOf(lane.pieces, { from, to }).map(({ name, ...block }) => ({
        ...block,
        key: `${block.x} ${name}`,
        fill: colorOf(name),
      })),
    [lane.pieces, from, to],
  );
  const at = cursor ?? from;
  const piece = pieceAt(lane.pieces, at);
  return (
    <Lane
      blocks={blocks}
      cursor={cursor}
      label={`Time of rank ${lane.rank}`}
      name={`rank ${lane.rank}`}
      next={(key) => neighbour(lane.pieces, at, key)?.begin_s}
      onCursor={onCursor}
      onRange={onRange}
      range={{ from, to }}
      valueText={piece ? sentenceOf(piece) : "nothing"}
    />
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
