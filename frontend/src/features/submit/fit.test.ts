import { describe, expect, it } from "vitest";
import type { Device, Host } from "@/api/schema";
import { EMPTY_DRAFT } from "./draft";
import { fitOf } from "./fit";
import { type Shape, shapeOf } from "./shape";

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

function hostIn(id: string, state: Host["state"], store = ""): Host {
  return {
    id,
    name: id,
    state,
    devices: 4,
    free_devices: 4,
    platforms: ["cpu"],
    simulated_devices: 0,
    version: "1",
    jax_version: "1",
    checkpoint_store: store,
    cpu_count: 2,
    memory_bytes: 1,
    registered_at: "",
    last_heartbeat_at: "",
    runs: [],
    drain_requested: false,
    warnings: [],
  };
}

interface Asked {
  draft?: Partial<typeof EMPTY_DRAFT>;
  /** Of the shape, beside what follows from the draft. */
  as?: Partial<Shape>;
  hosts?: Host[];
  waits?: boolean;
}

function fitFor(replicas: number, fleet: Device[], { draft, as, hosts = [], waits = false }: Asked = {}) {
  const shape = { ...shapeOf({ ...EMPTY_DRAFT, replicas: String(replicas), ...draft }), ...as };
  return fitOf(fleet, hosts, shape, waits);
}

const TWO_HOSTS = [...devices("a", "ffff"), ...devices("b", "ff")];

describe("whether a run fits", () => {
  it("starts at once where one host has enough free devices", () => {
    const fit = fitFor(4, [...devices("a", "ffff"), ...devices("b", "hhhh")]);
    expect(fit).toMatchObject({ verdict: "now", sentence: "4 devices free on a: it can start at once." });
  });

  it("waits where a host is large enough but busy, and says what is free", () => {
    const fit = fitFor(4, devices("a", "ffhh"));
    expect(fit).toMatchObject({
      verdict: "waits",
      sentence: "It will wait for 4 devices; a has 2 free now.",
    });
  });

  it("splits a gang over hosts where none alone has room", () => {
    expect(fitFor(6, TWO_HOSTS)).toMatchObject({
      verdict: "now",
      sentence:
        "6 devices free on 2 hosts, none with room for all replicas: it can start at once, split over several. They share no checkpoint store: run.checkpoint fails there.",
    });
    expect(fitFor(6, [...devices("a", "ffhh"), ...devices("b", "ff")])).toMatchObject({
      verdict: "waits",
      sentence:
        "It will wait for 6 devices; the 2 hosts have 4 free now. They share no checkpoint store: run.checkpoint fails there.",
    });
    expect(fitFor(7, TWO_HOSTS)).toMatchObject({
      verdict: "never",
      sentence: "It needs 7 devices, but the 2 hosts together have 6 devices.",
    });
  });

  it("says where hosts that a gang is split over share no checkpoint store", () => {
    const apart = "They share no checkpoint store: run.checkpoint fails there.";
    expect(
      fitFor(6, TWO_HOSTS, { hosts: [hostIn("a", "live"), hostIn("b", "live", "vol_x")] }).sentence,
    ).toContain(apart);
    const together = [hostIn("a", "live", "vol_x"), hostIn("b", "live", "vol_x")];
    expect(fitFor(6, TWO_HOSTS, { hosts: together }).sentence).not.toContain("store");
    expect(fitFor(4, TWO_HOSTS).sentence).not.toContain("store");
  });

  it("says so also of a run that will wait", () => {
    const busy = [...devices("a", "hh"), ...devices("b", "hh")];
    expect(fitFor(4, busy).sentence).toBe(
      "It will wait for 4 devices; none is free now. They share no checkpoint store: run.checkpoint fails there.",
    );
    const together = [hostIn("a", "live", "vol_x"), hostIn("b", "live", "vol_x")];
    expect(fitFor(4, busy, { hosts: together }).sentence).toBe(
      "It will wait for 4 devices; none is free now.",
    );
  });

  it("splits a run that asks for checkpoints over hosts of one store only", () => {
    const draft = { checkpointEvery: "10" };
    expect(fitFor(6, TWO_HOSTS, { draft })).toMatchObject({
      verdict: "never",
      sentence:
        "It needs 6 devices on hosts that share a checkpoint store, but no hosts of one store have room for more than 4 replicas.",
    });
    const hosts = [hostIn("a", "live", "vol_x"), hostIn("b", "live", "vol_x")];
    expect(fitFor(6, TWO_HOSTS, { draft, hosts }).verdict).toBe("now");
    expect(fitFor(4, TWO_HOSTS, { draft }).verdict).toBe("now");
  });

  it.each([
    { spread: "one_host" },
    { strategy: "central_storage" },
    { executor: "mpmd" },
    { executor: "pmap", spread: "balance" },
  ] as const)("does not add up devices of several hosts with %j", (draft) => {
    expect(fitFor(6, TWO_HOSTS, { draft })).toMatchObject({
      verdict: "never",
      sentence: "It needs 6 devices on one host, but the largest host has 4 devices.",
    });
    expect(fitFor(4, TWO_HOSTS, { draft }).verdict).toBe("now");
  });

  it.each([
    [{ strategy: "tpu", executor: "mpmd" }, /one SPMD program/],
    [{ batch: "per_replica", executor: "pmap" }, /chooses its executor itself/],
  ] as const)("never starts what no worker can run, even where it waits: %j", (draft, said) => {
    const fit = fitFor(1, TWO_HOSTS, { draft, waits: true });
    expect(fit.verdict).toBe("never");
    expect(fit.sentence).toMatch(said);
  });

  it.each([{ spread: "balance" }, { executor: "spmd" }, { batch: "per_replica" }] as const)(
    "adds them up with %j",
    (draft) => {
      expect(fitFor(6, TWO_HOSTS, { draft }).verdict).toBe("now");
    },
  );

  it("never adds up devices of two platforms", () => {
    const fleet = [...devices("a", "ffff"), ...devices("b", "ff", "gpu")];
    expect(fitFor(6, fleet)).toMatchObject({
      verdict: "never",
      sentence: "It needs 6 devices, but the largest host has 4 devices.",
    });
    expect(fitFor(2, fleet).sentence).toContain("free on b");
  });

  it("takes TPU devices only for the strategy tpu, unless a platform is named", () => {
    const fleet = devices("a", "ffff", "gpu");
    expect(fitFor(2, fleet, { draft: { strategy: "tpu" } })).toMatchObject({
      verdict: "never",
      sentence: "It needs 2 TPU devices on one slice, but no host with a TPU device is known.",
    });
    expect(fitFor(2, fleet, { draft: { strategy: "tpu", platform: "gpu" } }).verdict).toBe("now");
    const slices = [...devices("a", "ffff", "tpu"), ...devices("b", "ff", "tpu")];
    expect(fitFor(6, slices, { draft: { strategy: "tpu" } })).toMatchObject({
      verdict: "never",
      sentence: "It needs 6 TPU devices on one slice, but the largest slice has room for 4 replicas.",
    });
  });

  it("starts on a slice only where free devices form the box, as the scheduler does", () => {
    // A v3 host: 2 x 2 chips of 2 cores; a run has those at x = 0, so that the others form a column and no row.
    const slice = devices("a", "hhffhhff", "tpu").map((device, index) => ({
      ...device,
      coords: [Math.floor(index / 2) % 2, Math.floor(index / 4), 0],
      core_on_chip: index % 2,
    }));
    const row = { strategy: "tpu", computationShape: "2, 1, 1, 2" } as const;
    expect(fitFor(1, slice, { draft: row })).toMatchObject({
      verdict: "waits",
      sentence:
        "It will wait for 1 replica of 4 TPU devices; a has 4 free now, but no box of them side by side is large enough.",
    });
    expect(fitFor(1, slice, { draft: { ...row, computationShape: "1, 2, 1, 2" } }).verdict).toBe("now");
    expect(fitFor(2, slice, { draft: { ...row, computationShape: "1, 1, 1, 2" } }).verdict).toBe("now");
    expect(fitFor(4, slice, { draft: { strategy: "tpu" } }).verdict).toBe("now");
    expect(fitFor(4, slice, { draft: { strategy: "tpu", topology: "v3:2x1" } }).verdict).toBe("waits");
    expect(fitFor(4, slice, { draft: { strategy: "tpu", topology: "v3:1x2" } }).verdict).toBe("now");
    expect(
      fitFor(
        4,
        slice.map((device) => ({ ...device, coords: null })),
        { draft: { strategy: "tpu" } },
      ).verdict,
    ).toBe("now");
  });

  it("splits a run over the hosts of one slice, with whole replicas on each", () => {
    const fleet = ["a", "b"].flatMap((host, z) =>
      devices(host, "ffff", "tpu").map((device, index) => ({
        ...device,
        coords: [index % 2, Math.floor(index / 2), z],
        core_on_chip: 0,
      })),
    );
    const hosts = ["a", "b"].map((id) => ({
      ...hostIn(id, "live"),
      slice: {
        name: "v4:2x2x2",
        topology: "v4:2x2x2",
        chips: [2, 2, 2],
        wraps: [false, false, false],
      },
    }));
    const draft = { strategy: "tpu", topology: "v4-16" } as const;
    expect(fitFor(8, fleet, { draft, hosts })).toMatchObject({
      verdict: "now",
      sentence: "8 TPU devices free on slice v4:2x2x2: it can start at once.",
      hosts: [{ name: "a" }, { name: "b" }],
    });
    expect(fitFor(2, fleet, { draft: { ...draft, computationShape: "2, 2, 1, 1" }, hosts }).verdict).toBe(
      "now",
    );
    expect(fitFor(4, fleet, { draft: { ...draft, computationShape: "1, 1, 2, 1" }, hosts }).verdict).toBe(
      "waits",
    );
    expect(fitFor(8, fleet, { draft: { ...draft, spread: "one_host" }, hosts }).verdict).toBe("never");
    expect(fitFor(8, fleet, { draft }).verdict).toBe("never");
  });

  it("gives each replica all its devices on one host", () => {
    const draft = { strategy: "tpu", computationShape: "1, 1, 1, 2", platform: "cpu" } as const;
    const odd = [...devices("a", "fff"), ...devices("b", "fff")];
    const as = { unsupported: null, oneHost: null, oneSlice: false };
    expect(fitFor(2, odd, { draft, as }).verdict).toBe("now");
    expect(fitFor(3, odd, { draft, as })).toMatchObject({
      verdict: "never",
      sentence:
        "It needs 3 replicas of 2 CPU devices, but the 2 hosts together have 6 CPU devices, room for 2 replicas.",
    });
  });

  it("waits for quarantined devices, as the server does, and counts none of another platform", () => {
    expect(fitFor(4, devices("a", "fffq")).verdict).toBe("waits");
    expect(fitFor(4, devices("a", "ffff"), { draft: { platform: "gpu" } })).toMatchObject({
      verdict: "never",
      sentence: "It needs 4 GPU devices, but no host with a GPU device is known.",
    });
  });

  it.each(["lost", "draining", "quarantined"] as const)("waits for a host that is %s", (state) => {
    const fit = fitFor(4, devices("a", "ffff"), { hosts: [hostIn("a", state)] });
    expect(fit).toMatchObject({ verdict: "waits", hosts: [{ free: 0, total: 4, outOfService: state }] });
  });

  it("waits where the user allows it", () => {
    expect(fitFor(4, devices("a", "ff"), { waits: true })).toMatchObject({
      verdict: "waits",
      sentence: "It needs 4 devices and the largest host has 2 devices: it will wait for more.",
    });
  });
});
