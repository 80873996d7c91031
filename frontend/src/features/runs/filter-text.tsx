import { useQuery } from "@tanstack/react-query";
import { useEffect, useEffectEvent, useId, useRef, useState } from "react";
import { Icon } from "@/components/ui/icons";
import { classNames } from "@/lib/class-names";
import { useShortcut } from "@/lib/shortcuts";
import { isExpression, nameAt } from "./expression";
import { fieldsQuery } from "./queries";

const WAIT_MS = 250;
const SHOWN = 8;

export interface Flaw {
  message: string;
  /** In characters of the text. */
  at: number;
  length: number;
  nearest: readonly string[];
}

interface FilterTextProps {
  text: string;
  /** Two texts that mean the same: the one in force is not written over the one that is typed. */
  same: (typed: string, text: string) => boolean;
  flaw: Flaw | null;
  onChange: (text: string) => void;
}

/** The filter as text, with names completed; taken over after a pause, or at once by Enter. What is wrong stands below its place. */
export function FilterText({ text, same, flaw, onChange }: FilterTextProps) {
  const input = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState(text);
  const [inForce, setInForce] = useState(text);
  const [caret, setCaret] = useState<number | null>(null);
  const [chosen, setChosen] = useState(-1);
  const list = useId();
  if (text !== inForce) {
    setInForce(text);
    if (!same(typed, text)) setTyped(text);
  }
  useShortcut({ keys: "/", meaning: "Filter", group: "List" }, () => input.current?.focus());
  const takeOver = useEffectEvent(onChange);
  useEffect(() => {
    if (same(typed, inForce)) return;
    const timer = window.setTimeout(() => takeOver(typed), WAIT_MS);
    return () => window.clearTimeout(timer);
  }, [typed, inForce, same]);

  const asked = caret === null ? null : nameAt(typed, caret);
  const names = useQuery({ ...fieldsQuery(asked?.name ?? "", SHOWN), enabled: asked !== null });
  const open = asked !== null && (isExpression(typed) || asked.name.length > 1);
  const found = open ? (names.data?.items ?? []).filter(({ name }) => name !== asked.name) : [];
  const complete = (name: string) => {
    if (!asked) return;
    const end = asked.at + asked.name.length;
    const next = `${typed.slice(0, asked.at)}${name} ${typed.slice(end).trimStart()}`;
    setTyped(next);
    setChosen(-1);
    const place = asked.at + name.length + 1;
    requestAnimationFrame(() => {
      input.current?.setSelectionRange(place, place);
      setCaret(place);
    });
  };
  const onKey = (event: React.KeyboardEvent) => {
    const picked = found[chosen];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (found.length === 0) return;
      setChosen((old) => (old + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length);
    } else if ((event.key === "Enter" || event.key === "Tab") && picked) complete(picked.name);
    else if (event.key === "Enter") onChange(typed);
    else if (event.key === "Escape" && found.length > 0) setCaret(null);
    else {
      if (event.key === "Escape") input.current?.blur();
      return;
    }
    event.preventDefault();
  };
  return (
    <div className="relative min-w-0 flex-1 basis-80">
      <Icon className="pointer-events-none absolute top-2 left-2.5 text-muted" name="search" />
      <input
        aria-activedescendant={chosen >= 0 ? `${list}-${chosen}` : undefined}
        aria-autocomplete="list"
        aria-controls={list}
        aria-describedby={flaw ? `${list}-flaw` : undefined}
        aria-expanded={found.length > 0}
        aria-invalid={flaw !== null}
        aria-label="Filter runs"
        autoComplete="off"
        className={classNames(
          "h-8 w-full rounded-control border bg-bg pr-8 pl-8",
          flaw ? "border-bad" : "border-line-strong",
          isExpression(typed) && "font-mono text-xs",
        )}
        maxLength={2000}
        onBlur={() => setCaret(null)}
        onChange={(event) => {
          setTyped(event.target.value);
          setCaret(event.target.selectionStart);
          setChosen(-1);
        }}
        onKeyDown={onKey}
        placeholder="params.lr > 0.1 and loss < 0.3, or words, state:failed, job:digits"
        ref={input}
        role="combobox"
        spellCheck={false}
        value={typed}
      />
      <span
        aria-hidden="true"
        className="absolute top-1.5 right-2 rounded-control border border-line px-1 font-mono text-2xs text-muted"
      >
        /
      </span>
      {found.length > 0 && (
        <div
          aria-label="Fields"
          className="absolute top-9 left-0 z-30 min-w-64 rounded-panel border border-line-strong bg-bg p-1"
          id={list}
          role="listbox"
        >
          {found.map(({ name, kind }, place) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the arrows and Enter of the input do the same
            <div
              aria-selected={place === chosen}
              className="flex cursor-pointer items-baseline justify-between gap-6 rounded-control px-2 py-1 hover:bg-hover aria-selected:bg-accent-soft"
              id={`${list}-${place}`}
              key={name}
              onClick={() => complete(name)}
              onMouseDown={(event) => event.preventDefault()}
              role="option"
              tabIndex={-1}
            >
              <code className="truncate">{name}</code>
              <span className="text-muted text-xs">{kind}</span>
            </div>
          ))}
        </div>
      )}
      {flaw && (
        <FlawLine
          flaw={flaw}
          id={`${list}-flaw`}
          onPick={(name) => setTyped(mended(typed, flaw, name))}
          text={typed}
        />
      )}
    </div>
  );
}

function FlawLine({
  flaw,
  id,
  text,
  onPick,
}: {
  flaw: Flaw;
  id: string;
  text: string;
  onPick: (name: string) => void;
}) {
  const start = Math.max(0, flaw.at - 24);
  const end = flaw.at + Math.max(1, flaw.length);
  return (
    <div className="mt-1 text-xs" id={id} role="alert">
      <code className="text-muted">
        {start > 0 && "…"}
        {text.slice(start, flaw.at)}
        <mark className="bg-transparent text-bad underline decoration-wavy underline-offset-2">
          {text.slice(flaw.at, end) || "␣"}
        </mark>
        {text.slice(end, end + 24)}
      </code>
      <span className="ml-2">{flaw.message}</span>
      {flaw.nearest.map((name) => (
        <button className="ml-2 text-accent underline" key={name} onClick={() => onPick(name)} type="button">
          {name}
        </button>
      ))}
    </div>
  );
}

function mended(text: string, flaw: Flaw, name: string): string {
  return text.slice(0, flaw.at) + name + text.slice(flaw.at + flaw.length);
}
