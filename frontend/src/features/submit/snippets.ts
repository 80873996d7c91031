import type { JsonValue } from "@/api/schema";
import { python, quote, shell } from "@/lib/code";
import type { Submission } from "./request";
import type { Grid } from "./sweep";

/** The same request in three languages: what the page does, the SDK, the CLI and plain HTTP do too. */

const DEFAULT_GRACE_S = 30;

/** What is varied where the form stands for a sweep. */
export interface Swept {
  name: string;
  grid: Grid;
}

export function asPython(request: Submission, filename: string, swept?: Swept): string {
  const { limits, resources, parameters, labels } = request;
  const limit = [
    limits.run_s != null && `run_s=${limits.run_s}`,
    limits.step_s != null && `step_s=${limits.step_s}`,
    limits.first_step_s != null && `first_step_s=${limits.first_step_s}`,
    limits.queue_s != null && `queue_s=${limits.queue_s}`,
    limits.grace_s !== DEFAULT_GRACE_S && `grace_s=${limits.grace_s}`,
  ].filter(Boolean);
  const strategy = pythonStrategy(request);
  const retries = request.retries.user;
  const every = request.job.checkpoint.every_steps;
  const specs = [
    every != null && "CheckpointSpec",
    limit.length > 0 && "Limits",
    retries > 0 && "Retries",
    strategy.spec,
  ].filter(Boolean);
  const lines = [
    quote(filename),
    swept && python(swept.grid as JsonValue),
    swept?.name && `batch_name=${quote(swept.name)}`,
    `name=${quote(request.job.name)}`,
    `replicas=${resources.replicas}`,
    strategy.text !== '"mirrored"' && `strategy=${strategy.text}`,
    Object.keys(parameters).length > 0 && `parameters=${python(parameters)}`,
    resources.platform !== "any" && `platform=${quote(resources.platform)}`,
    limit.length > 0 && `limits=Limits(${limit.join(", ")})`,
    retries > 0 && `retries=Retries(user=${retries})`,
    request.priority !== 0 && `priority=${request.priority}`,
    Object.keys(labels).length > 0 && `labels=${python(labels)}`,
    request.wait_for_devices && "wait_for_devices=True",
    every != null && `checkpoint=CheckpointSpec(every_steps=${every})`,
    request.resume_from && `resume_from=${quote(request.resume_from)}`,
  ].filter(Boolean);
  return [
    "from drumline import Client",
    ...(specs.length > 0 ? [`from drumline.contracts.spec import ${specs.sort().join(", ")}`] : []),
    "",
    `${swept ? "batch = Client().sweep" : "run = Client().submit"}(\n    ${lines.join(",\n    ")},\n)`,
    swept ? "for outcome in batch.wait().outcomes():\n    print(outcome)" : "print(run.wait().result)",
  ].join("\n");
}

export function asCli(request: Submission, filename: string, swept?: Swept): string {
  const { resources, parameters, labels, limits } = request;
  const { kind, ...options } = request.job.strategy;
  const flags = [
    ...Object.entries(swept?.grid ?? {}).map(
      ([name, values]) => `--sweep ${shell(`${name}=${values.map(plain).join(",")}`)}`,
    ),
    swept?.name && `--batch-name ${shell(swept.name)}`,
    `--name ${shell(request.job.name)}`,
    `--replicas ${resources.replicas}`,
    kind !== "mirrored" && `--strategy ${kind}`,
    ...changed(options).map(([name, value]) => `-s ${shell(`${name}=${value}`)}`),
    ...Object.entries(parameters).map(([name, value]) => `-p ${shell(`${name}=${plain(value)}`)}`),
    resources.platform !== "any" && `--platform ${resources.platform}`,
    limits.run_s != null && `--time-limit ${limits.run_s}`,
    limits.step_s != null && `--step-limit ${limits.step_s}`,
    limits.first_step_s != null && `--first-step-limit ${limits.first_step_s}`,
    limits.queue_s != null && `--queue-limit ${limits.queue_s}`,
    limits.grace_s !== DEFAULT_GRACE_S && `--grace ${limits.grace_s}`,
    request.priority !== 0 && `--priority ${request.priority}`,
    request.retries.user > 0 && `--retries ${request.retries.user}`,
    ...Object.entries(labels).map(([name, value]) => `--label ${shell(`${name}=${value}`)}`),
    request.wait_for_devices && "--wait-for-devices",
    request.job.checkpoint.every_steps != null && `--checkpoint-every ${request.job.checkpoint.every_steps}`,
    request.resume_from && `--resume-from ${request.resume_from}`,
  ].filter(Boolean);
  return [`drumline ${swept ? "sweep" : "submit"} ${shell(filename)}`, ...flags].join(" \\\n  ");
}

export function asCurl(request: Submission, filename: string, origin: string, swept?: Swept): string {
  const body = swept
    ? { name: swept.name, run: request, sweep: { kind: "grid", parameters: swept.grid } }
    : request;
  const type = filename.endsWith(".zip") ? "application/zip" : "text/x-python";
  return `# the program first; the same bytes always give the same bundle
curl -sS ${origin}/api/v1/bundles?filename=${encodeURIComponent(filename)} \\
  -H "Authorization: Bearer $DRUMLINE_TOKEN" -H 'Content-Type: ${type}' \\
  --data-binary @${shell(filename)}

curl -sS ${origin}/api/v1/runs${swept ? ":sweep" : ""} \\
  -H "Authorization: Bearer $DRUMLINE_TOKEN" -H 'Content-Type: application/json' \\
  -H "Idempotency-Key: $(openssl rand -hex 16)" \\
  -d ${shell(JSON.stringify(body, null, 2))}`;
}

function pythonStrategy(request: Submission): { text: string; spec: string | false } {
  const { kind, ...options } = request.job.strategy;
  const extra = changed(options);
  if (extra.length === 0) return { text: quote(kind), spec: false };
  const spec = {
    mirrored: "MirroredSpec",
    central_storage: "CentralStorageSpec",
    tpu: "TpuSpec",
    one_device: "OneDeviceSpec",
  };
  return {
    text: `${spec[kind]}(${extra.map(([name, value]) => `${name}=${python(value)}`).join(", ")})`,
    spec: spec[kind],
  };
}

/** The options that differ from their defaults. */
function changed(options: object): [string, JsonValue][] {
  const defaults: Record<string, unknown> = {
    batch: "global",
    executor: "auto",
    cross_device_ops: "auto",
    device_order: "auto",
  };
  return Object.entries(options).filter(([name, value]) => value != null && value !== defaults[name]);
}

function plain(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
