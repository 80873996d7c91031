import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { Duration } from "./figures";

afterEach(cleanup);

const NOW = Date.parse("2026-11-25T10:10:00Z");
const RUN = { created_at: "2026-11-25T10:00:00Z", started_at: "2026-11-25T10:09:00Z", ended_at: null };

it.each([
  [{ ...RUN, attempts: 1 }, "1 m 00 s"],
  [{ ...RUN, attempts: 3 }, "1 m 00 s, 10 m 00 s in all"],
  [{ ...RUN, attempts: 2, ended_at: "2026-11-25T10:09:30Z" }, "30 s, 9 m 30 s in all"],
  [{ ...RUN, attempts: 0, started_at: null }, "not started"],
])("shows how long the newest attempt takes and, where it is not the first, the run", (run, shown) => {
  const { container } = render(<Duration now={NOW} run={run} />);

  expect(container.textContent).toBe(shown);
});
