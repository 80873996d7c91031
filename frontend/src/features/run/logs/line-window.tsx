import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { useSize } from "@/components/charts/use-size";
import { Icon } from "@/components/ui/icons";
import { count } from "@/lib/format";
import { LineRow } from "./line-row";
import type { LogLoader } from "./loader";
import type { LineRange } from "./range";
import { scrollHeight, scrollTopFor, viewportAt } from "./scroll";

interface LineWindowProps {
  loader: LogLoader;
  revision: number;
  wrap: boolean;
  find: string;
  range: LineRange | null;
  follow: boolean;
  /** A line to bring on screen; a new object brings it there again. */
  goal: { line: number } | null;
  onFollow: (follow: boolean) => void;
  onNumber: (line: number, stretch: boolean) => void;
}

/** The lines on screen and no others. The scroll bar is in lines, so that wrapping and unloaded parts need no measuring. */
export function LineWindow(props: LineWindowProps) {
  const { loader, revision, wrap, find, range, follow, goal, onFollow, onNumber } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const { height } = useSize(scroller);
  const [scrollTop, setScrollTop] = useState(0);
  const [leftAt, setLeftAt] = useState(0);
  const lines = loader.buffer.lineCount;
  const view = viewportAt(scrollTop, height, lines);
  const digits = Math.max(4, String(lines).length);

  // biome-ignore lint/correctness/useExhaustiveDependencies: each revision may have added lines below
  useLayoutEffect(() => {
    if (follow && scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [follow, revision, height, lines]);

  useEffect(() => {
    if (goal && height > 0 && scroller.current) {
      scroller.current.scrollTop = scrollTopFor(goal.line, height, loader.buffer.lineCount);
    }
  }, [goal, height, loader]);

  useEffect(() => {
    if (height > 0) loader.show(view.first, view.first + view.count);
  }, [loader, height, view.first, view.count]);

  const onScroll = (event: React.UIEvent<HTMLDivElement>) => {
    const { scrollTop: top, scrollHeight: whole, clientHeight } = event.currentTarget;
    setScrollTop(top);
    const atEnd = top + clientHeight >= whole - 2;
    if (atEnd === follow) return;
    if (follow) setLeftAt(lines);
    onFollow(atEnd);
  };
  const added = follow ? 0 : Math.max(0, lines - leftAt);
  const numbers = Array.from({ length: view.count }, (_, at) => view.first + at);
  return (
    <div className="relative min-h-72 flex-1">
      <section
        aria-label="Log"
        className="absolute inset-0 overflow-y-auto overflow-x-hidden border-line border-y bg-bg font-mono text-xs outline-offset-[-2px]"
        data-lines={lines}
        data-testid="log-lines"
        onScroll={onScroll}
        ref={scroller}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
        tabIndex={0}
      >
        <div style={{ height: scrollHeight(lines) }}>
          <div
            className={`sticky top-0 flex flex-col overflow-x-auto overflow-y-hidden ${view.atEnd ? "justify-end" : ""}`}
            style={{ height: Math.min(height, scrollHeight(lines)) }}
          >
            <div
              className={wrap ? "min-w-0" : "w-max min-w-full"}
              style={{ marginTop: view.atEnd ? 0 : -view.offset, paddingLeft: `${digits + 3}ch` }}
            >
              {numbers.map((number) => (
                <LineRow
                  digits={digits}
                  find={find}
                  key={number}
                  line={loader.buffer.line(number)}
                  number={number}
                  onNumber={onNumber}
                  selected={range !== null && number >= range.from && number <= range.to}
                  wrap={wrap}
                />
              ))}
            </div>
          </div>
        </div>
      </section>
      {!follow && (
        <button
          className="absolute right-5 bottom-4 flex h-8 items-center gap-1.5 rounded-full border border-line-strong bg-bg px-3 text-xs hover:bg-hover"
          onClick={() => onFollow(true)}
          type="button"
        >
          <Icon name="down" size={12} />
          {added > 0 && leftAt > 0 ? count(added, "new line") : "Follow"}
        </button>
      )}
    </div>
  );
}
