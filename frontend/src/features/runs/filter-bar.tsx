import { useEffect, useEffectEvent, useRef, useState } from "react";
import { Button, IconButton } from "@/components/ui/button";
import { CopyMenu } from "@/components/ui/copy-menu";
import { Icon } from "@/components/ui/icons";
import { StateIcon } from "@/components/ui/state-badge";
import { classNames } from "@/lib/class-names";
import { useShortcut } from "@/lib/shortcuts";
import {
  flawOf,
  formatFilter,
  type ParsedFilter,
  parseFilter,
  STATE_WORDS,
  type StateWord,
  toggleState,
} from "./filter";
import { listRuns } from "./snippets";

const WAIT_MS = 250;
const SHOWN: readonly StateWord[] = ["queued", "running", "succeeded", "failed", "cancelled"];

interface FilterBarProps {
  filter: ParsedFilter;
  oldestFirst: boolean;
  onChange: (filter: ParsedFilter) => void;
  onTurn: () => void;
}

/** The filter as text, as switches for the usual states, and as chips that say what is in force. */
export function FilterBar({ filter, oldestFirst, onChange, onTurn }: FilterBarProps) {
  return (
    <div className="mb-2">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-2">
        <FilterText onChange={onChange} text={formatFilter(filter) ?? ""} />
        <fieldset className="flex flex-wrap max-sm:-ml-2">
          <legend className="sr-only">States</legend>
          {SHOWN.map((word) => (
            <StateSwitch
              key={word}
              on={filter.states.includes(word)}
              onToggle={() => onChange(toggleState(filter, word))}
              word={word}
            />
          ))}
        </fieldset>
        <div className="ml-auto flex items-center gap-2 max-sm:-ml-2">
          <Button compact look="quiet" onClick={onTurn}>
            {oldestFirst ? "Oldest first" : "Newest first"}
          </Button>
          <CopyMenu choices={listRuns(filter, oldestFirst, window.location.origin)} label="Copy as" />
        </div>
      </div>
      <Chips filter={filter} onChange={onChange} />
    </div>
  );
}

/** What is typed is taken over after a pause, or at once by Enter. */
function FilterText({ text, onChange }: { text: string; onChange: (filter: ParsedFilter) => void }) {
  const input = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState(text);
  const [inForce, setInForce] = useState(text);
  if (text !== inForce) {
    setInForce(text);
    if (formatFilter(parseFilter(typed)) !== (text || undefined)) setTyped(text);
  }
  useShortcut({ keys: "/", meaning: "Filter", group: "List" }, () => input.current?.focus());
  const takeOver = useEffectEvent(onChange);
  useEffect(() => {
    const filter = parseFilter(typed);
    if ((formatFilter(filter) ?? "") === inForce) return;
    const timer = window.setTimeout(() => takeOver(filter), WAIT_MS);
    return () => window.clearTimeout(timer);
  }, [typed, inForce]);
  return (
    <div className="relative w-full sm:w-[420px]">
      <Icon className="pointer-events-none absolute top-2 left-2.5 text-muted" name="search" />
      <input
        aria-label="Filter runs"
        className="h-8 w-full rounded-control border border-line-strong bg-bg pr-8 pl-8"
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => event.key === "Escape" && input.current?.blur()}
        placeholder="state:failed job:digits owner:ci label:team=vision"
        ref={input}
        spellCheck={false}
        value={typed}
      />
      <span
        aria-hidden="true"
        className="absolute top-1.5 right-2 rounded-control border border-line px-1 font-mono text-2xs text-muted"
      >
        /
      </span>
    </div>
  );
}

function StateSwitch({ word, on, onToggle }: { word: StateWord; on: boolean; onToggle: () => void }) {
  return (
    <button
      aria-pressed={on}
      className={classNames(
        "flex h-7 items-center gap-1.5 rounded-control px-2 capitalize",
        on ? "bg-accent-soft text-text" : "text-muted hover:bg-hover hover:text-text",
      )}
      onClick={onToggle}
      type="button"
    >
      <StateIcon size={10} state={STATE_WORDS[word][0]} />
      {word}
    </button>
  );
}

/** What is in force, and the filter without it. */
type Chip = [string, ParsedFilter];

function only<Value>(value: Value | undefined, chip: (value: Value) => Chip): Chip[] {
  return value === undefined ? [] : [chip(value)];
}

function Chips({ filter, onChange }: { filter: ParsedFilter; onChange: (filter: ParsedFilter) => void }) {
  const chips: Chip[] = [
    ...filter.states.map((word): Chip => [`state:${word}`, toggleState(filter, word)]),
    ...only(filter.job, (job) => [`job:${job}`, { ...filter, job: undefined, version: undefined }]),
    ...only(filter.version, (version) => [`version:${version}`, { ...filter, version: undefined }]),
    ...only(filter.owner, (owner) => [`owner:${owner}`, { ...filter, owner: undefined }]),
    ...only(filter.batch, (batch) => [`batch:${batch}`, { ...filter, batch: undefined }]),
    ...filter.labels.map(
      (label): Chip => [
        `label:${label}`,
        { ...filter, labels: filter.labels.filter((other) => other !== label) },
      ],
    ),
  ];
  if (chips.length + filter.unknown.length === 0) return null;
  return (
    <div className="mt-2 flex flex-wrap items-center gap-1.5">
      {chips.map(([text, without]) => (
        <span className="inline-flex h-6 items-center rounded-control border border-line pl-2" key={text}>
          <code>{text}</code>
          <IconButton className="size-6!" label={`Remove ${text}`} onClick={() => onChange(without)}>
            <Icon name="close" size={10} />
          </IconButton>
        </span>
      ))}
      {filter.unknown.map((part) => (
        <span className="text-warn" key={part}>
          <code>{part}</code> was left out: it {flawOf(part)}
        </span>
      ))}
      <Button compact look="quiet" onClick={() => onChange(parseFilter(""))}>
        Clear
      </Button>
    </div>
  );
}
