import { useEffect, useReducer, useState } from "react";
import { type LogLevel, type LogStream, searchLogs } from "../queries";
import { LogSearch, MOST_HITS } from "./search";

/** While someone types, nothing is looked for. */
const PAUSE_MS = 250;

interface Wanted {
  runId: string;
  /** Whose output; nothing is looked for before it is known. */
  member: string | null;
  find: string;
  regex: boolean;
  level: LogLevel | undefined;
  stream: LogStream | undefined;
  since: string | undefined;
  until: string | undefined;
}

type Looked = Pick<Wanted, "find" | "level" | "stream" | "since" | "until">;

/** Whether anything is looked for. */
export function looksFor({ find, level, stream, since, until }: Looked): boolean {
  return find !== "" || [level, stream, since, until].some((each) => each !== undefined);
}

/** Looks for `find` of a level, a stream and a time in the whole output of a member, of which `endByte` bytes are known. */
export function useSearch(wanted: Wanted, endByte: number): LogSearch | null {
  const { runId, member, find, regex, level, stream, since, until } = wanted;
  const [search, setSearch] = useState<LogSearch | null>(null);
  const [, changed] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    setSearch(null);
    if (!looksFor({ find, level, stream, since, until }) || member === null) return;
    const query = {
      ...{ find, regex, member, limit: MOST_HITS },
      ...(level ? { level } : {}),
      ...(stream ? { stream } : {}),
      ...(since ? { since } : {}),
      ...(until ? { until } : {}),
    };
    const made = new LogSearch(
      (cursor, signal) => searchLogs(runId, { ...query, ...(cursor ? { cursor } : {}) }, signal),
      changed,
    );
    const timer = window.setTimeout(() => {
      setSearch(made);
      void made.run();
    }, PAUSE_MS);
    return () => {
      window.clearTimeout(timer);
      made.close();
    };
  }, [runId, member, find, regex, level, stream, since, until]);
  useEffect(() => search?.grow(endByte), [search, endByte]);
  return search;
}
