import { memo } from "react";
import { LineText } from "@/components/ui/line-text";
import { classNames } from "@/lib/class-names";
import type { Line } from "./buffer";
import { LINE_HEIGHT } from "./scroll";

interface LineRowProps {
  number: number;
  /** `null` while it is on its way. */
  line: Line | null;
  digits: number;
  wrap: boolean;
  find: string;
  selected: boolean;
  onNumber: (line: number, stretch: boolean) => void;
}

export const LineRow = memo(function LineRow(props: LineRowProps) {
  const { number, line, digits, wrap, find, selected, onNumber } = props;
  return (
    <div
      className="relative pr-4"
      data-selected={selected || undefined}
      data-line={number}
      data-gap={line?.gap || undefined}
      data-stream={line?.stderr ? "stderr" : "stdout"}
      style={{
        minHeight: LINE_HEIGHT,
        lineHeight: `${LINE_HEIGHT}px`,
        marginLeft: `-${digits + 3}ch`,
        paddingLeft: `${digits + 3}ch`,
      }}
    >
      <button
        aria-label={`Line ${number}`}
        className={classNames(
          "absolute left-0 select-none text-right hover:text-text",
          selected ? "border-accent border-l-2 bg-accent-soft text-accent" : "text-muted",
        )}
        onClick={(event) => onNumber(number, event.shiftKey)}
        style={{ width: `${digits + 1}ch` }}
        tabIndex={-1}
        type="button"
      >
        {number}
      </button>
      {line?.stderr && (
        <span
          className="absolute border-warn border-l-2 text-transparent"
          style={{ left: `${digits + 2}ch` }}
          title="stderr"
        >
          <span className="sr-only">stderr: </span>|
        </span>
      )}
      <span
        className={classNames(
          wrap ? "whitespace-pre-wrap break-all" : "whitespace-pre",
          line?.gap && "text-warn italic",
        )}
      >
        {line ? <LineText find={find} text={line.text} /> : <span className="text-muted">…</span>}
      </span>
    </div>
  );
});
