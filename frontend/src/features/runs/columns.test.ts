import { expect, it } from "vitest";
import { columnsOf } from "./columns";

const SORTING = { sort: undefined, onSort: () => undefined };
const SELECTION = { ids: new Set<string>(), all: false };

/** The least room of why in a list of these notes, and the most of the note, in rem. */
function roomsOf(...notes: string[]): (string | undefined)[] {
  const rows = notes.map((note, at) => ({ id: `run_${at}`, note }));
  const columns = columnsOf([], SORTING, SELECTION as never, rows as never);
  const of = (id: string, which: RegExp) =>
    columns.find((column) => column.id === id)?.className?.match(which)?.[0];
  return [of("because", /min-w-\d+/), of("note", /(?<!:)max-w-\d+/)];
}

it("makes room for notes from that of why, so that a list still ends with when on a laptop", () => {
  expect(roomsOf("", "")).toEqual(["min-w-32", undefined]);
  expect(roomsOf("", "slow")).toEqual(["min-w-20", "max-w-40"]);
});
