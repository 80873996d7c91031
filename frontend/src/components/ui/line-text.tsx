import { Fragment } from "react";
import { type Hue, type Span, spansOf } from "@/lib/ansi";
import { classNames } from "@/lib/class-names";

/** Longer lines are cut on the page; the raw download has them whole. */
const MOST_CHARACTERS = 4_000;

const HUE_CLASS: Record<Hue, string> = {
  red: "text-bad",
  green: "text-ok",
  yellow: "text-warn",
  blue: "text-active",
  magenta: "text-accent",
  cyan: "text-active",
  muted: "text-muted",
};

/** A line of output as text nodes: colours as roles of the theme, acting characters as their codes. */
export function LineText({ text, find = "" }: { text: string; find?: string }) {
  const spans = spansOf(text.length > MOST_CHARACTERS ? text.slice(0, MOST_CHARACTERS) : text);
  return (
    <>
      {spans.map((span, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: spans of a line never move
        <span className={classOf(span)} key={at}>
          {span.escaped ? span.text : markMatches(span.text, find)}
        </span>
      ))}
      {text.length > MOST_CHARACTERS && (
        <span className="text-muted"> … {text.length - MOST_CHARACTERS} more characters</span>
      )}
    </>
  );
}

function classOf(span: Span): string {
  return classNames(
    span.escaped && "rounded-control bg-line px-0.5 text-muted",
    span.hue && HUE_CLASS[span.hue],
    span.bold && "font-strong",
    span.dim && "opacity-70",
    span.italic && "italic",
    span.underline && "underline",
    span.inverse && "bg-line-strong text-bg",
  );
}

function markMatches(text: string, find: string) {
  if (find === "") return text;
  const parts = text.split(new RegExp(`(${find.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})`, "gi"));
  return parts.map((part, at) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: parts of a line never move
    <Fragment key={at}>
      {at % 2 === 1 ? <mark className="bg-accent-soft text-accent">{part}</mark> : part}
    </Fragment>
  ));
}
