import { lineStyle } from "./line-style";

/** A short piece of a line as it is drawn, before its name. */
export function LineMark({ style }: { style: number | null }) {
  const { color, dash } = lineStyle(style);
  return (
    <svg aria-hidden="true" className="shrink-0" height="8" viewBox="0 0 18 8" width="18">
      <path d="M0 4h18" stroke={`var(${color})`} strokeDasharray={dash.join(" ")} strokeWidth="2" />
    </svg>
  );
}
