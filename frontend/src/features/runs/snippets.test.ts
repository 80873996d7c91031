import { describe, expect, it } from "vitest";
import { parseFilter } from "./filter";
import { listRuns } from "./snippets";

const ORIGIN = "http://127.0.0.1:7700";

function textsOf(filter: string, oldestFirst = false) {
  const choices = listRuns(parseFilter(filter), oldestFirst ? { sort: "created" } : {}, ORIGIN);
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

  it("gives an expression with sort and columns in each language", () => {
    const search = { where: "loss < 0.3", sort: "-params.lr", columns: 'params.lr,"a, b"' };
    const choices = listRuns(parseFilter("state:failed"), search, ORIGIN);
    const { Python, CLI, curl } = Object.fromEntries(choices.map(({ name, text }) => [name, text]));

    expect(Python).toContain(
      '.runs("loss < 0.3 and state in (FAILED)", sort="-params.lr", columns=["params.lr"',
    );
    expect(CLI).toContain(
      "--where 'loss < 0.3 and state in (FAILED)' --sort -params.lr --columns 'params.lr,",
    );
    expect(curl).toContain("sort=-params.lr&column=params.lr&column=%22a%2C+b%22");
  });

  it("lists everything without a filter", () => {
    expect(textsOf("").CLI).toBe(`drumline ps --url ${ORIGIN}\n`);
    expect(textsOf("").curl).toContain(`${ORIGIN}/api/v1/runs -H`);
  });
});
