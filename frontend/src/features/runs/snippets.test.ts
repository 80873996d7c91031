import { describe, expect, it } from "vitest";
import { parseFilter } from "./filter";
import { listRuns } from "./snippets";

const ORIGIN = "http://127.0.0.1:7700";

function textsOf(filter: string, oldestFirst = false) {
  const choices = listRuns(parseFilter(filter), oldestFirst, ORIGIN);
  return Object.fromEntries(choices.map(({ name, text }) => [name, text]));
}

describe("listRuns", () => {
  it("asks for the same runs in each language", () => {
    const { Python, CLI, curl } = textsOf("state:failed,queued job:digits");

    expect(Python).toContain('list(states=["FAILED", "QUEUED"], job="digits")');
    expect(CLI).toBe(`drumline ps --state FAILED --state QUEUED --job digits --url ${ORIGIN}\n`);
    expect(curl).toContain("/api/v1/runs?state=FAILED&state=QUEUED&job=digits");
  });

  it("keeps labels, words and the order in each language", () => {
    const { Python, CLI, curl } = textsOf("label:team=it's mnist", true);

    expect(Python).toContain('labels={"team": "it\'s"}, search="mnist", sort="created"');
    expect(CLI).toBe(`drumline ps mnist --label 'team=it'\\''s' --sort created --url ${ORIGIN}\n`);
    expect(curl).toContain("label=team%3Dit%27s&q=mnist&sort=created");
  });

  it("lists everything without a filter", () => {
    expect(textsOf("").CLI).toBe(`drumline ps --url ${ORIGIN}\n`);
    expect(textsOf("").curl).toContain(`${ORIGIN}/api/v1/runs -H`);
  });
});
