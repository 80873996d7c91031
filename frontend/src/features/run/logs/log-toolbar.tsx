import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import type { Attempt } from "@/api/schema";
import { Button, buttonClass, IconButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { Select } from "@/components/ui/select";
import { classNames } from "@/lib/class-names";
import { count, formatBytes } from "@/lib/format";
import type { LogLevel, LogStream } from "../queries";
import type { LogBuffer } from "./buffer";
import { MemberSelect } from "./member-select";
import { foundText, type LogSearch } from "./search";
import { TimeFields } from "./time-fields";
import { looksFor, useSearch } from "./use-search";

const route = getRouteApi("/runs/$runId/logs");
const PRESSED = "aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent";

interface LogToolbarProps {
  runId: string;
  attempts: readonly Attempt[];
  attempt: string | undefined;
  member: string | undefined;
  buffer: LogBuffer;
  revision: number;
  wrap: boolean;
  find: string;
  regex: boolean;
  level: LogLevel | undefined;
  stream: LogStream | undefined;
  /** Only lines written from then, and until then. */
  since: string | undefined;
  until: string | undefined;
  /** Whose output is shown, as far as it is known. */
  shown: string | null;
  goTo: (line: number) => void;
}

export function LogToolbar(props: LogToolbarProps) {
  const { runId, attempts, attempt, member, buffer, wrap } = props;
  const navigate = route.useNavigate();
  return (
    <div className="mb-3 flex flex-wrap items-center gap-x-4 gap-y-2">
      <MemberSelect
        attempts={attempts}
        member={member}
        onChoose={(next) =>
          void navigate({ search: (old) => ({ ...old, ...next }), hash: "", replace: true })
        }
      />
      <Find {...props} />
      <span className="text-muted text-xs">
        {count(buffer.lineCount, "line")}, {formatBytes(buffer.endByte)}
      </span>
      <div className="ml-auto flex items-center gap-3">
        <button
          aria-pressed={wrap}
          className={classNames(buttonClass("plain", true), PRESSED)}
          onClick={() =>
            void navigate({
              search: (old) => ({ ...old, wrap: wrap ? undefined : true }),
              hash: true,
              replace: true,
              resetScroll: false,
            })
          }
          type="button"
        >
          Wrap
        </button>
        <a className={buttonClass("plain", true)} download href={rawAddress(runId, attempt, member)}>
          Raw log
        </a>
      </div>
    </div>
  );
}

const ANY = "any";
const LEVELS = [
  { value: ANY, label: "Any level" },
  { value: "info", label: "Info and above" },
  { value: "warning", label: "Warnings and above" },
  { value: "error", label: "Errors and above" },
  { value: "critical", label: "Critical only" },
] as const;
const STREAMS = [
  { value: ANY, label: "Any stream" },
  { value: "stdout", label: "stdout" },
  { value: "stderr", label: "stderr" },
  { value: "system", label: "Drumline's own" },
] as const;

function Find(props: LogToolbarProps) {
  const { buffer, runId, shown, find, regex, level, stream, since, until, goTo } = props;
  const navigate = route.useNavigate();
  const search = useSearch(
    { runId, member: shown, find, regex, level, stream, since, until },
    buffer.endByte,
  );
  const [at, setAt] = useState(-1);
  const hits = search?.hits ?? [];
  const move = (by: number) => {
    if (hits.length === 0) return;
    const next = at < 0 && by < 0 ? hits.length - 1 : (at + by + hits.length) % hits.length;
    setAt(next);
    goTo(hits[next] ?? 1);
  };
  const narrow = (change: Partial<Pick<LogToolbarProps, "level" | "stream" | "since" | "until">>) => {
    setAt(-1);
    void navigate({
      search: (old) => ({ ...old, ...change }),
      hash: true,
      replace: true,
      resetScroll: false,
    });
  };
  return (
    <search className="flex flex-wrap items-center gap-1">
      <input
        aria-label="Find in the whole log"
        className="h-7 w-56 max-w-full rounded-control border border-line-strong bg-bg px-2 text-xs"
        onChange={(event) => {
          setAt(-1);
          void navigate({
            search: (old) => ({ ...old, find: event.target.value || undefined }),
            hash: true,
            replace: true,
            resetScroll: false,
          });
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") move(event.shiftKey ? -1 : 1);
          if (event.key === "Escape") search?.stop();
        }}
        placeholder={regex ? "Expression, as of RE2" : "Find in the log"}
        type="search"
        value={find}
      />
      <button
        aria-label="Find an expression"
        aria-pressed={regex}
        className={classNames(buttonClass("plain", true), PRESSED, "font-mono")}
        onClick={() => {
          setAt(-1);
          void navigate({
            search: (old) => ({ ...old, regex: regex ? undefined : true }),
            hash: true,
            replace: true,
            resetScroll: false,
          });
        }}
        title="Find an expression (RE2) instead of plain text"
        type="button"
      >
        .*
      </button>
      <Select
        choices={level === "debug" ? [...LEVELS, { value: "debug", label: "Any that is said" }] : LEVELS}
        className="text-xs"
        compact
        label="Level of the lines, by what they say"
        onChange={(next) => narrow({ level: next === ANY ? undefined : (next as LogLevel) })}
        value={level ?? ANY}
      />
      <Select
        choices={STREAMS}
        className="text-xs"
        compact
        label="Stream of the lines"
        onChange={(next) => narrow({ stream: next === ANY ? undefined : (next as LogStream) })}
        value={stream ?? ANY}
      />
      <TimeFields onChange={narrow} since={since} until={until} />
      {looksFor({ find, level, stream, since, until }) && (
        <>
          <Found at={at} search={search} />
          <IconButton disabled={hits.length === 0} label="Previous match" onClick={() => move(-1)}>
            <Icon className="rotate-180" name="down" size={14} />
          </IconButton>
          <IconButton disabled={hits.length === 0} label="Next match" onClick={() => move(1)}>
            <Icon name="down" size={14} />
          </IconButton>
        </>
      )}
    </search>
  );
}

/** What was found, of how much that was looked at; and how to stop looking, or continue. */
function Found({ search, at }: { search: LogSearch | null; at: number }) {
  return (
    <span
      className={classNames(
        "flex min-w-16 items-center gap-1 px-1 text-xs",
        search?.state === "refused" ? "max-w-96 text-bad" : "whitespace-nowrap text-muted",
      )}
    >
      <span aria-live="polite" data-state={search?.state ?? "searching"} data-testid="log-found">
        {foundText(search, at)}
      </span>
      {search?.state === "searching" && (
        <Button compact look="quiet" onClick={() => search.stop()}>
          Stop
        </Button>
      )}
      {(search?.state === "stopped" || search?.state === "failed") && (
        <Button compact look="quiet" onClick={() => void search.run()}>
          {search.state === "failed" ? "Try again" : "Go on"}
        </Button>
      )}
    </span>
  );
}

function rawAddress(runId: string, attempt: string | undefined, member: string | undefined): string {
  const query = new URLSearchParams();
  if (attempt) query.set("attempt", attempt);
  if (member) query.set("member", member);
  const text = query.toString();
  return `/api/v1/runs/${encodeURIComponent(runId)}/logs/raw${text ? `?${text}` : ""}`;
}
