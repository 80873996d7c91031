import { StrategyMark } from "@/components/ui/glyphs";
import { type Choice, Select } from "@/components/ui/select";
import type { DeviceOrder, Draft, Executor, Platform, Spread, StrategyKind } from "./draft";
import { Field, INPUT_CLASS } from "./field";
import { needsFlaws } from "./request";
import { strategyOnOneHost, unsupportedStrategy } from "./shape";

const STRATEGIES: readonly Choice<StrategyKind>[] = [
  {
    value: "mirrored",
    label: <StrategyMark kind="mirrored" />,
    note: "One replica per device, every variable mirrored on each",
  },
  {
    value: "central_storage",
    label: <StrategyMark kind="central_storage" />,
    note: "Compute on all devices, variables on one parameter device",
  },
  {
    value: "tpu",
    label: <StrategyMark kind="tpu" />,
    note: "Replicas of one or several cores, side by side on a slice",
  },
  { value: "one_device", label: <StrategyMark kind="one_device" />, note: "Everything on one device" },
];

const PLATFORMS: readonly Choice<Platform>[] = [
  { value: "any", label: "Any", note: "Whatever is free" },
  { value: "cpu", label: "CPU" },
  { value: "gpu", label: "GPU" },
  { value: "tpu", label: "TPU" },
];

const EXECUTORS: readonly Choice<Executor>[] = [
  { value: "auto", label: "Auto", note: "The engine chooses" },
  { value: "spmd", label: "SPMD", note: "One program over all devices" },
  { value: "pmap", label: "pmap" },
  { value: "mpmd", label: "MPMD", note: "A thread per replica, in lock step" },
];

const ORDERS: readonly Choice<DeviceOrder>[] = [
  { value: "auto", label: "Auto", note: "Rings where blocks fill the box, else mesh" },
  { value: "ring", label: "Ring", note: "Neighbours in a reduction are neighbours on the torus" },
  { value: "mesh", label: "Mesh", note: "Core by core, then along x, y, z" },
];

const BATCHES: readonly Choice<Draft["batch"]>[] = [
  { value: "global", label: "Global", note: "A batch is split over the replicas" },
  { value: "per_replica", label: "Per replica", note: "Each replica gets a batch of its own" },
];

const SPREADS: readonly Choice<Spread>[] = [
  { value: "pack", label: "Pack", note: "One host with room, else few, filled one after the other" },
  { value: "balance", label: "Balance", note: "One host with room, else few, with equal shares" },
  { value: "one_host", label: "One host", note: "Never split over hosts" },
];

interface StrategyFieldsProps {
  draft: Draft;
  errorOf: (field: string) => string | undefined;
  change: (part: Partial<Draft>) => void;
}

/** How the program is spread over devices. */
export function StrategyFields({ draft, errorOf: errorOnSubmit, change }: StrategyFieldsProps) {
  // The forecast of room for the run goes by these: they are marked without waiting for a submit.
  const flaws = needsFlaws(draft);
  const errorOf = (field: string) => flaws[field] ?? errorOnSubmit(field);
  const one = draft.strategy === "one_device";
  const oneHost = strategyOnOneHost(draft);
  return (
    <div className="grid grid-cols-2 gap-x-4 gap-y-3 pt-3">
      <Field error={errorOf("job.strategy.kind") ?? unsupportedStrategy(draft) ?? undefined} label="Strategy">
        {({ id }) => (
          <Select
            choices={STRATEGIES}
            className="w-full"
            id={id}
            onChange={(strategy) => change({ strategy, ...(strategy === "one_device" && { replicas: "1" }) })}
            value={draft.strategy}
          />
        )}
      </Field>
      <Field error={errorOf("resources.replicas")} label="Replicas">
        {(control) => (
          <input
            {...control}
            className={INPUT_CLASS}
            disabled={one}
            inputMode="numeric"
            onChange={(event) => change({ replicas: event.target.value })}
            value={draft.replicas}
          />
        )}
      </Field>
      <Field error={errorOf("resources.platform")} label="Platform">
        {({ id }) => (
          <Select
            choices={PLATFORMS}
            className="w-full"
            id={id}
            onChange={(platform) => change({ platform })}
            value={draft.platform}
          />
        )}
      </Field>
      {!one && (
        <Field
          error={errorOf("resources.spread")}
          hint={oneHost && `one host in any case, as ${oneHost} needs`}
          label="Spread"
        >
          {({ id }) => (
            <Select
              choices={SPREADS}
              className="w-full"
              id={id}
              onChange={(spread) => change({ spread })}
              value={draft.spread}
            />
          )}
        </Field>
      )}
      {!one && (
        <Field error={errorOf("job.strategy.executor")} label="Executor">
          {({ id }) => (
            <Select
              choices={EXECUTORS}
              className="w-full"
              id={id}
              onChange={(executor) => change({ executor })}
              value={draft.executor}
            />
          )}
        </Field>
      )}
      {draft.strategy === "mirrored" && (
        <Field label="Batch">
          {({ id }) => (
            <Select
              choices={BATCHES}
              className="w-full"
              id={id}
              onChange={(batch) => change({ batch })}
              value={draft.batch}
            />
          )}
        </Field>
      )}
      {draft.strategy === "tpu" && <TpuFields change={change} draft={draft} errorOf={errorOf} />}
      {draft.strategy === "central_storage" && (
        <Field error={errorOf("parameter_device")} hint="empty: the host's CPU" label="Parameter device">
          {(control) => (
            <input
              {...control}
              className={`${INPUT_CLASS} font-mono text-xs`}
              onChange={(event) => change({ parameterDevice: event.target.value })}
              placeholder="cpu:0"
              value={draft.parameterDevice}
            />
          )}
        </Field>
      )}
    </div>
  );
}

const TEXTS = [
  {
    key: "computationShape",
    field: "job.strategy.computation_shape",
    label: "Computation shape",
    hint: "cores of a replica along x, y, z, core; empty: one",
    placeholder: "2, 2, 1, 1",
  },
  {
    key: "computationStride",
    field: "job.strategy.computation_stride",
    label: "Stride",
    hint: "how far apart they are; empty: side by side",
    placeholder: "1, 1, 1, 1",
  },
  {
    key: "topology",
    field: "job.strategy.topology",
    label: "Topology",
    hint: "the slice that all replicas fill; empty: any box",
    placeholder: "v4:2x2x1",
  },
] as const;

/** Where the cores of a replica of TPUStrategy are. */
function TpuFields({ draft, errorOf, change }: StrategyFieldsProps) {
  return (
    <>
      {TEXTS.map(({ key, field, label, hint, placeholder }) => (
        <Field error={errorOf(field)} hint={hint} key={key} label={label}>
          {(control) => (
            <input
              {...control}
              className={`${INPUT_CLASS} font-mono text-xs`}
              maxLength={40}
              onChange={(event) => change({ [key]: event.target.value })}
              placeholder={placeholder}
              value={draft[key]}
            />
          )}
        </Field>
      ))}
      <Field label="Device order">
        {({ id }) => (
          <Select
            choices={ORDERS}
            className="w-full"
            id={id}
            onChange={(deviceOrder) => change({ deviceOrder })}
            value={draft.deviceOrder}
          />
        )}
      </Field>
    </>
  );
}
