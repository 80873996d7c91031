import { useEffect, useReducer, useState } from "react";
import { searchLogs } from "../queries";
import { LogSearch, MOST_HITS } from "./search";

/** While someone types, nothing is looked for. */
const PAUSE_MS = 250;

interface Wanted {
  runId: string;
  /** Whose output; nothing is looked for before it is known. */
  member: string | null;
  find: string;
  regex: boolean;
}

/** Looks for `find` in the whole output of a member, of which `endByte` bytes are known to be there. */
export function useSearch({ runId, member, find, regex }: Wanted, endByte: number): LogSearch | null {
  const [search, setSearch] = useState<LogSearch | null>(null);
  const [, changed] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    setSearch(null);
    if (find === "" || member === null) return;
    const query = { find, regex, member, limit: MOST_HITS };
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
  }, [runId, member, find, regex]);
  useEffect(() => search?.grow(endByte), [search, endByte]);
  return search;
}
