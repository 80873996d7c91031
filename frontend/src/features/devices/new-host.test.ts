import { describe, expect, it } from "vitest";
import type { Host } from "@/api/schema";
import { enrolCommand, findNewHost } from "./new-host";

function host(id: string, registered_at: string): Host {
  return { id, name: id, registered_at } as Host;
}

describe("a host that is added", () => {
  it("is the one that registered since", () => {
    const old = host("hst_1", "2026-01-01T00:00:00Z");
    const known = ["hst_1 2026-01-01T00:00:00Z"];
    expect(findNewHost([old], known)).toBeUndefined();
    expect(findNewHost([old, host("hst_2", "2026-01-02T00:00:00Z")], known)?.id).toBe("hst_2");
  });

  it("may be one that was there before, and registers again", () => {
    expect(findNewHost([host("hst_1", "2026-01-02T00:00:00Z")], ["hst_1 2026-01-01T00:00:00Z"])?.id).toBe(
      "hst_1",
    );
  });

  it("gets its token by a descriptor, never as an argument", () => {
    const command = enrolCommand("http://10.0.0.7:7700", "drm_enr_x");
    expect(command.split("3<<<")[0]).not.toContain("drm_enr_x");
    expect(command).toContain("--server http://10.0.0.7:7700 ");
  });
});
