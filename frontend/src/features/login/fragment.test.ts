import { describe, expect, it } from "vitest";
import { codeInFragment, localPath } from "./fragment";

describe("the login link", () => {
  it("carries its code in the fragment", () => {
    expect(codeInFragment("#code=abc-123")).toBe("abc-123");
    expect(codeInFragment("")).toBeNull();
  });

  it.each([
    ["/runs?q=state:failed", "/runs?q=state:failed"],
    ["https://elsewhere.test", "/"],
    ["//elsewhere.test", "/"],
    ["/\\elsewhere.test", "/"],
    ["/login?next=/login", "/"],
    [undefined, "/"],
  ])("leads from %s to %s and never to another host", (next, path) => {
    expect(localPath(next)).toBe(path);
  });
});
