import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import type { Attempt } from "@/api/schema";
import { Button, buttonClass, IconButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { classNames } from "@/lib/class-names";
import { count, formatBytes } from "@/lib/format";
import type { LogBuffer } from "./buffer";

import { MemberSelect } from "./member-select";
import { foundText, type LogSearch } from "./search";
import { useSearch } from "./use-search";

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

function Find({ buffer, runId, shown, find, regex, goTo }: LogToolbarProps) {
  const navigate = route.useNavigate();
  const search = useSearch({ runId, member: shown, find, regex }, buffer.endByte);
  const [at, setAt] = useState(-1);
  const hits = search?.hits ?? [];
  const move = (by: number) => {
    if (hits.length === 0) return;
    const next = at < 0 && by < 0 ? hits.length - 1 : (at + by + hits.length) % hits.length;
    setAt(next);
    goTo(hits[next] ?? 1);
  };
  return (
    <search className="flex items-center gap-1">
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
      {find !== "" && (
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
