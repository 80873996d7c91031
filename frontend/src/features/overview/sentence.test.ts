import { expect, it } from "vitest";
import { overviewSentence } from "./sentence";

const CALM = {
  devices_held: 1,
  devices_total: 8,
  hosts: [{}],
  stalled_total: 0,
  failed_total: 0,
  hosts_silent: 0,
  hosts_failing: 0,
};

it.each([
  [{}, "1 of 8 devices busy, nothing needs attention"],
  [{ failed_total: 18 }, "1 of 8 devices busy, 18 failed runs"],
  [{ failed_total: 1, hosts_silent: 1 }, "1 of 8 devices busy, 1 failed run and 1 silent host"],
  [
    { stalled_total: 2, failed_total: 18, hosts_failing: 1 },
    "1 of 8 devices busy, 2 runs standing still, 18 failed runs and 1 failing host",
  ],
])("says %o in one line", (troubles, sentence) => {
  expect(overviewSentence({ ...CALM, ...troubles } as never)).toBe(sentence);
});
