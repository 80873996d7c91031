import { describe, expect, it } from "vitest";
import type { Attempt, Host, Placement } from "@/api/schema";
import { placedDevice, placementOn } from "../testing";
import { bytesByHome, paintsFor, railsOf, type Scene } from "./paint";
import { storageOf } from "./storage";

const devices = Array.from({ length: 9 }, (_, i) =>
  placedDevice({ device: `dev_${i}`, index: i, replica: i }),
);

const placement = (some: Partial<Placement> = {}) => placementOn(devices, some);

const variable = (homes: string[], size_bytes: number) => ({
  name: "w",
  shape: [2],
  dtype: "float32",
  synchronization: "auto",
  aggregation: "mean",
  homes,
  size_bytes,
});

function scene(some: Partial<Scene> = {}): Scene {
  return { placement: placement(), attempt: undefined, hosts: [], ended: false, ...some };
}

const host = (state: Host["state"]) => ({ id: "hst_a", state }) as Host;
const attempt = (state: string, signal: number | null = null) =>
  ({ members: [{ host: "hst_a", state, signal }] }) as unknown as Attempt;

describe("paintsFor", () => {
  it("gives the ninth replica the first colour with another hatch", () => {
    const paints = paintsFor(scene(), "replica");

    expect([paints[0]?.fill, paints[0]?.hatch]).toEqual(["--replica-0", 0]);
    expect([paints[8]?.fill, paints[8]?.hatch]).toEqual(["--replica-0", 1]);
    expect(paints[8]?.title).toBe("8");
  });

  it("adds the logical device where a replica has several", () => {
    const logical = [placedDevice({ replica: 2, logical: 0 }), placedDevice({ replica: 2, logical: 1 })];

    const paints = paintsFor(scene({ placement: placement({ devices: logical }) }), "replica");

    expect(paints.map((paint) => paint.title)).toEqual(["2·0", "2·1"]);
  });

  it.each([
    ["a lost member", scene({ attempt: attempt("LOST") }), "dead"],
    ["a member that a signal ended", scene({ attempt: attempt("EXITED", 9), ended: true }), "dead"],
    ["a silent host", scene({ hosts: [host("suspect")] }), "silent"],
    ["a draining host", scene({ hosts: [host("draining")] }), "draining"],
    ["a host that is silent after the run", scene({ hosts: [host("suspect")], ended: true }), null],
    ["a healthy host", scene({ hosts: [host("live")], attempt: attempt("RUNNING") }), null],
  ])("draws %s by its shape", (_, some, overlay) => {
    expect(paintsFor(some, "state")[0]?.overlay).toBe(overlay);
  });
});

describe("railsOf", () => {
  it("draws a ring for mirrored copies, a bus for central storage and nothing for one replica", () => {
    expect(railsOf(placement())).toBe("ring");
    expect(railsOf(placement({ strategy: "central_storage" }))).toBe("bus");
    expect(railsOf(placement({ devices: devices.slice(0, 1) }))).toBe("none");
  });
});

describe("bytesByHome", () => {
  it("adds one copy of each variable to each of its homes", () => {
    const held = bytesByHome(
      placement({ variables: [variable(["dev_0", "dev_1"], 8), variable(["dev_1"], 4)] }),
    );

    expect([held.get("dev_0"), held.get("dev_1"), held.get("dev_2")]).toEqual([8, 12, undefined]);
  });
});

describe("storageOf", () => {
  it("names the device that holds the variables, or host memory", () => {
    const central = (homes: string[]) =>
      storageOf(placement({ strategy: "central_storage", variables: [variable(homes, 2048)] }));

    expect(central(["dev_3"])).toMatchObject({ title: "cpu:3 on host-a", note: "1 variable, 2.0 KiB" });
    expect(central(["host"])?.title).toBe("Host memory");
    expect(storageOf(placement())).toBeNull();
  });
});
