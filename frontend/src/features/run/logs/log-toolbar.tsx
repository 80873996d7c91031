import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Attempt } from "@/api/schema";
import { buttonClass, IconButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { plainText } from "@/lib/ansi";
import { classNames } from "@/lib/class-names";
import { count, formatBytes, formatInteger } from "@/lib/format";
import type { LogBuffer } from "./buffer";
import { MemberSelect } from "./member-select";

const route = getRouteApi("/runs/$runId/logs");

interface LogToolbarProps {
  runId: string;
  attempts: readonly Attempt[];
  attempt: string | undefined;
  member: string | undefined;
  buffer: LogBuffer;
  revision: number;
  wrap: boolean;
  find: string;
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
          className={classNames(
            buttonClass("plain", true),
            "aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent",
          )}
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

function Find({ buffer, revision, find, goTo }: LogToolbarProps) {
  const navigate = route.useNavigate();
  const [at, setAt] = useState(-1);
  // biome-ignore lint/correctness/useExhaustiveDependencies: each revision may hold more lines
  const hits = useMemo(() => hitsIn(buffer, find), [buffer, find, revision]);
  const move = (by: number) => {
    if (hits.length === 0) return;
    const next = (at + by + hits.length) % hits.length;
    setAt(next);
    goTo(hits[next] ?? 1);
  };
  return (
    <search className="flex items-center gap-1">
      <input
        aria-label="Find in the loaded lines"
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
          if (event.key === "Enter") move(event.shiftKey ? -1 : at < 0 ? 1 : 1);
        }}
        placeholder="Find in loaded lines"
        type="search"
        value={find}
      />
      {find !== "" && (
        <>
          <span aria-live="polite" className="min-w-16 px-1 text-muted text-xs">
            {hits.length === 0
              ? "not found"
              : `${at >= 0 ? `${at + 1} of ` : ""}${formatInteger(hits.length)}`}
          </span>
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

/** Numbers of the loaded lines that contain the text, whatever its case. */
function hitsIn(buffer: LogBuffer, find: string): number[] {
  if (find === "") return [];
  const wanted = find.toLowerCase();
  return [...buffer.loaded()].filter((number) =>
    plainText(buffer.line(number)?.text ?? "")
      .toLowerCase()
      .includes(wanted),
  );
}

function rawAddress(runId: string, attempt: string | undefined, member: string | undefined): string {
  const query = new URLSearchParams();
  if (attempt) query.set("attempt", attempt);
  if (member) query.set("member", member);
  const text = query.toString();
  return `/api/v1/runs/${encodeURIComponent(runId)}/logs/raw${text ? `?${text}` : ""}`;
}
