import type { RunListView } from "@/api/schema";
import { Button, IconButton } from "@/components/ui/button";
import { CopyMenu } from "@/components/ui/copy-menu";
import { Icon } from "@/components/ui/icons";
import { StateIcon } from "@/components/ui/state-badge";
import { classNames } from "@/lib/class-names";
import { ColumnPicker } from "./column-picker";
import { isExpression } from "./expression";
import {
  flawOf,
  formatFilter,
  type ParsedFilter,
  parseFilter,
  STATE_WORDS,
  type StateWord,
  toggleState,
} from "./filter";
import { FilterText, type Flaw } from "./filter-text";
import { GroupBy } from "./group-by";
import type { RunsSearch } from "./search";
import { listRuns } from "./snippets";
import { ViewsMenu } from "./views-menu";

const SHOWN: readonly StateWord[] = ["queued", "running", "succeeded", "failed", "cancelled"];

interface FilterBarProps {
  filter: ParsedFilter;
  search: RunsSearch;
  columns: readonly string[];
  view: RunListView;
  flaw: Flaw | null;
  onSet: (next: RunsSearch) => void;
}

/** The filter as text, as switches for the usual states, and as chips; then columns, groups and saved views. */
export function FilterBar({ filter, search, columns, view, flaw, onSet }: FilterBarProps) {
  const change = (next: ParsedFilter) => onSet({ q: formatFilter(next) });
  return (
    <div className="mb-2">
      <div className="flex flex-wrap items-start gap-x-3 gap-y-2">
        <FilterText
          flaw={flaw}
          onChange={(text) => onSet(taken(text, filter))}
          same={isSame}
          text={search.where ?? formatFilter(filter) ?? ""}
        />
        <fieldset className="flex flex-wrap max-sm:-ml-2">
          <legend className="sr-only">States</legend>
          {SHOWN.map((word) => (
            <StateSwitch
              key={word}
              on={filter.states.includes(word)}
              onToggle={() => change(toggleState(filter, word))}
              word={word}
            />
          ))}
        </fieldset>
        <div className="ml-auto flex flex-wrap items-center gap-2 max-sm:ml-0">
          <Button
            aria-pressed={search.archived ?? false}
            compact
            look="quiet"
            onClick={() => onSet({ archived: search.archived ? undefined : true })}
          >
            {search.archived ? "Hide archived" : "Show archived"}
          </Button>
          <GroupBy onChange={(by) => onSet({ group: by || undefined })} value={search.group ?? ""} />
          <ColumnPicker
            chosen={columns}
            onChange={(next) => onSet({ columns: next.join(",") || undefined })}
          />
          <ViewsMenu current={view} onOpen={(saved) => onSet(opened(saved))} />
          <CopyMenu choices={listRuns(filter, search, window.location.origin)} label="Copy as" />
        </div>
      </div>
      <Chips filter={filter} onChange={change} />
    </div>
  );
}

/** What the typed text asks for. An expression takes the place of words, and leaves the chips. */
function taken(text: string, filter: ParsedFilter): RunsSearch {
  if (isExpression(text))
    return { where: text.trim(), q: formatFilter({ ...filter, words: [], unknown: [] }) };
  return { where: undefined, q: formatFilter(parseFilter(text)) };
}

function isSame(typed: string, text: string): boolean {
  if (isExpression(typed) || isExpression(text)) return typed.trim() === text.trim();
  return (formatFilter(parseFilter(typed)) ?? "") === text;
}

function opened(view: RunListView): RunsSearch {
  return {
    q: undefined,
    where: view.where || undefined,
    sort: view.sort || undefined,
    columns: view.columns?.join(",") || undefined,
    group: view.group || undefined,
    archived: view.archived || undefined,
  };
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
