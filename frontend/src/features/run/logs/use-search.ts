import { useEffect, useReducer, useState } from "react";
import { fetchLogs } from "../queries";
import { LogSearch } from "./search";

/** While someone types, nothing is looked for. */
const PAUSE_MS = 250;

interface Where {
  runId: string;
  attempt: string | undefined;
  member: string | undefined;
}

/** Looks for `find` in the whole output of a member, of which `endByte` bytes are known to be there. */
export function useSearch(
  { runId, attempt, member }: Where,
  find: string,
  endByte: number,
): LogSearch | null {
  const [search, setSearch] = useState<LogSearch | null>(null);
  const [, changed] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    setSearch(null);
    if (find === "") return;
    const made = new LogSearch(find, (range) => fetchLogs(runId, { ...range, attempt, member }), changed);
    const timer = window.setTimeout(() => {
      setSearch(made);
      void made.run();
    }, PAUSE_MS);
    return () => {
      window.clearTimeout(timer);
      made.close();
    };
  }, [runId, attempt, member, find]);
  useEffect(() => search?.grow(endByte), [search, endByte]);
  return search;
}
