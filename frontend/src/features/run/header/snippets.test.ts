import { describe, expect, it } from "vitest";
import { reachRun } from "./snippets";

const texts = Object.fromEntries(
  reachRun({ id: "run_01" }, "http://127.0.0.1:7700").map(({ name, text }) => [name, text]),
);

describe("reachRun", () => {
  it("names the run and the server in each language", () => {
    expect(Object.keys(texts)).toEqual(["Python", "CLI", "curl"]);
    expect(texts.Python).toContain('run = Client("http://127.0.0.1:7700").get("run_01")');
    expect(texts.CLI).toContain("drumline watch run_01 --url http://127.0.0.1:7700");
    expect(texts.CLI).toContain("drumline logs run_01 --follow");
    expect(texts.curl).toContain("http://127.0.0.1:7700/api/v1/runs/run_01/logs/raw");
  });

  it("names the token by its variable and never holds one", () => {
    expect(texts.curl).toContain("Bearer $DRUMLINE_TOKEN");
  });
});
