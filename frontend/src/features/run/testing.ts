import type { ArraySummary, LogSegment, Logs, PlacedDevice, Placement, Reduction } from "@/api/schema";

let made = 0;

/** A device with everything that a test does not name. */
export function placedDevice(some: Partial<PlacedDevice> = {}): PlacedDevice {
  return {
    device: `dev_${made++}`,
    host: "hst_a",
    host_name: "host-a",
    platform: "cpu",
    index: 0,
    kind: "cpu",
    memory_bytes: null,
    coords: null,
    core_on_chip: null,
    simulated: true,
    replica: 0,
    logical: 0,
    ...some,
  };
}

/** A mirrored run on these devices, of which no step has run yet. */
export function placementOn(devices: PlacedDevice[], some: Partial<Placement> = {}): Placement {
  return {
    run: "run_1",
    attempt: "att_1",
    strategy: "mirrored",
    executor: "spmd",
    confirmed: true,
    devices,
    replicas: [],
    variables: [],
    exchanges: { programs: [], more_programs: 0, not_recorded: "no_step" },
    ...some,
  };
}

/** An array as it is recorded; `values` may be left out for large ones. */
export function array(values: number[] | null, some: Partial<ArraySummary> = {}): ArraySummary {
  return {
    shape: [values?.length ?? 0],
    dtype: "float32",
    values,
    min: null,
    max: null,
    mean: null,
    norm: null,
    nan_count: 0,
    inf_count: 0,
    checksum: "",
    ...some,
  };
}

export function scalar(value: number, some: Partial<ArraySummary> = {}): ArraySummary {
  return array([value], { shape: [], ...some });
}

export function reduction(some: Partial<Reduction>): Reduction {
  const inputs = some.inputs ?? [];
  return {
    id: "red_1",
    attempt: "att_1",
    step: 0,
    name: "loss",
    op: "sum",
    axis: null,
    origin: "host",
    nth: 1,
    of: 1,
    replicas: inputs.length,
    ragged: false,
    result_shape: some.output?.shape ?? [],
    result: null,
    inputs,
    counts: inputs.map(() => 1),
    denominator: null,
    output: scalar(0),
    recorded_at: "2026-01-01T00:00:00.000000Z",
    outliers: [],
    outlier_count: 0,
    ...some,
  };
}

export function segment(
  text: string,
  first_byte: number,
  first_line: number,
  some: Partial<LogSegment> = {},
): LogSegment {
  return { stream: "stdout", at: "2026-01-01T00:00:00.000000Z", first_byte, first_line, text, ...some };
}

/** The server's answer for bytes `from` to `to` of an ASCII log. */
export function logsOf(whole: string, from: number, to: number, some: Partial<Logs> = {}): Logs {
  const firstLine = whole.slice(0, from).split("\n").length;
  const end = Math.min(to, whole.length);
  return {
    run: "run_1",
    attempt: "att_1",
    member: "mem_1",
    segments: [segment(whole.slice(from, end), from, firstLine)],
    first_byte: from,
    next_byte: end,
    end_byte: whole.length,
    lines: whole.split("\n").length - 1,
    ended: false,
    complete: false,
    ...some,
  };
}
