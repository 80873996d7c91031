import { describe, expect, it } from "vitest";
import type { Device } from "@/api/schema";
import { fitOf } from "./fit";

function devices(host: string, states: string, platform: Device["platform"] = "cpu"): Device[] {
  const names: Record<string, Device["state"]> = { f: "FREE", h: "HELD", q: "QUARANTINED" };
  return [...states].map((letter, index) => ({
    id: `${host}-${index}`,
    host,
    host_name: host,
    platform,
    index,
    kind: platform,
    memory_bytes: null,
    coords: null,
    core_on_chip: null,
    simulated: true,
    state: names[letter] ?? "FREE",
    run: null,
    job: null,
    replica: null,
  }));
}

describe("whether a run fits", () => {
  it("starts at once where one host has enough free devices", () => {
    expect(fitOf([...devices("a", "ffff"), ...devices("b", "hhhh")], 4, "any", false).verdict).toBe("now");
  });

  it("waits where a host is large enough but busy, and says what is free", () => {
    const fit = fitOf(devices("a", "ffhh"), 4, "any", false);
    expect(fit.verdict).toBe("waits");
    expect(fit.sentence).toContain("a has 2 free now");
  });

  it("does not add up devices of several hosts", () => {
    expect(fitOf([...devices("a", "ff"), ...devices("b", "ff")], 4, "any", false).verdict).toBe("never");
  });

  it("counts neither quarantined devices nor those of another platform", () => {
    expect(fitOf(devices("a", "fffq"), 4, "any", false).verdict).toBe("never");
    expect(fitOf(devices("a", "ffff"), 4, "gpu", false).sentence).toContain(
      "no host with a GPU device is known",
    );
  });

  it("waits where the user allows it", () => {
    expect(fitOf(devices("a", "ff"), 4, "any", true).verdict).toBe("waits");
  });
});
