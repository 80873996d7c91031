import type { CheckpointSpec, JsonValue, Limits, Retries } from "@/api/schema";
import { python, quote, shell } from "@/lib/code";
import { exactText } from "@/lib/wire-numbers";
import { differences, differencesIn } from "./kept";
import { type Submission, textOf } from "./request";
import type { Grid } from "./sweep";

/** The same request in three languages: what the page does, the SDK, the CLI and plain HTTP do too. */

const SPECS = {
  mirrored: "MirroredSpec",
  central_storage: "CentralStorageSpec",
  tpu: "TpuSpec",
  one_device: "OneDeviceSpec",
} as const;

type Numbers = { limits: Limits; retries: Retries; checkpoint: CheckpointSpec };
type NumberName = { [Part in keyof Numbers]: `${Part}.${keyof Numbers[Part] & string}` }[keyof Numbers];

const FLAGS: Readonly<Record<NumberName, string>> = {
  "limits.run_s": "--time-limit",
  "limits.step_s": "--step-limit",
  "limits.first_step_s": "--first-step-limit",
  "limits.rendezvous_s": "--rendezvous-limit",
  "limits.queue_s": "--queue-limit",
  "limits.grace_s": "--grace",
  "retries.user": "--retries",
  "retries.infrastructure": "--infrastructure-retries",
  "checkpoint.every_steps": "--checkpoint-every",
  "checkpoint.keep": "--keep",
  "checkpoint.keep_every_steps": "--keep-every",
};

/** What is varied where the form stands for a sweep. */
export interface Swept {
  name: string;
  grid: Grid;
}

export function asPython(request: Submission, filename: string, swept?: Swept): string {
  const { job, resources, parameters, labels } = request;
  const strategy = SPECS[job.strategy.kind];
  const specs = {
    strategy: spec(
      strategy,
      differences("strategy", job.strategy).filter(([name]) => name !== "kind"),
    ),
    limits: spec("Limits", differences("limits", request.limits)),
    retries: spec("Retries", differences("retries", request.retries)),
    record: spec("RecordSpec", differences("record", job.record)),
    checkpoint: spec("CheckpointSpec", differences("checkpoint", job.checkpoint)),
  };
  const imports = Object.values(specs).flatMap((text) => (text ? [text.slice(0, text.indexOf("("))] : []));
  const lines = [
    quote(filename),
    swept && python(swept.grid as JsonValue),
    swept?.name && `batch_name=${quote(swept.name)}`,
    `name=${quote(job.name)}`,
    `replicas=${resources.replicas}`,
    specs.strategy
      ? `strategy=${specs.strategy}`
      : job.strategy.kind !== "mirrored" && `strategy=${quote(job.strategy.kind)}`,
    Object.keys(parameters).length > 0 && `parameters=${python(parameters)}`,
    resources.platform !== "any" && `platform=${quote(resources.platform)}`,
    resources.spread !== "pack" && `spread=${quote(resources.spread)}`,
    specs.limits && `limits=${specs.limits}`,
    specs.retries && `retries=${specs.retries}`,
    request.priority !== 0 && `priority=${request.priority}`,
    Object.keys(labels).length > 0 && `labels=${python(labels)}`,
    request.wait_for_devices && "wait_for_devices=True",
    specs.record && `record=${specs.record}`,
    specs.checkpoint && `checkpoint=${specs.checkpoint}`,
    request.resume_from && `resume_from=${quote(request.resume_from)}`,
  ].filter(Boolean);
  return [
    "from drumline import Client",
    ...(imports.length > 0 ? [`from drumline.contracts.spec import ${imports.sort().join(", ")}`] : []),
    "",
    `${swept ? "batch = Client().sweep" : "run = Client().submit"}(\n    ${lines.join(",\n    ")},\n)`,
    swept ? "for outcome in batch.wait().outcomes():\n    print(outcome)" : "print(run.wait().result)",
  ].join("\n");
}

export function asCli(request: Submission, filename: string, swept?: Swept): string {
  const { job, resources, parameters, labels } = request;
  const { kind, ...options } = job.strategy;
  const { limits, retries } = request;
  const numbers = differencesIn({ limits, retries, checkpoint: job.checkpoint });
  const flags = [
    ...Object.entries(swept?.grid ?? {}).map(
      ([name, values]) => `--sweep ${shell(`${name}=${values.map(textOf).join(",")}`)}`,
    ),
    swept?.name && `--batch-name ${shell(swept.name)}`,
    `--name ${shell(job.name)}`,
    `--replicas ${resources.replicas}`,
    kind !== "mirrored" && `--strategy ${kind}`,
    ...differences("strategy", options).map(([name, value]) => `-s ${shell(`${name}=${textOf(value)}`)}`),
    ...Object.entries(parameters).map(([name, value]) => `-p ${shell(`${name}=${textOf(value)}`)}`),
    resources.platform !== "any" && `--platform ${resources.platform}`,
    resources.spread !== "pack" && `--spread ${resources.spread}`,
    ...numbers.map(([name, value]) => `${FLAGS[name as NumberName]} ${value}`),
    ...differences("record", job.record).map(([name, value]) => `--record ${name}=${value}`),
    request.priority !== 0 && `--priority ${request.priority}`,
    ...Object.entries(labels).map(([name, value]) => `--label ${shell(`${name}=${value}`)}`),
    request.wait_for_devices && "--wait-for-devices",
    request.resume_from && `--resume-from ${request.resume_from}`,
  ].filter(Boolean);
  return [`drumline ${swept ? "sweep" : "submit"} ${shell(filename)}`, ...flags].join(" \\\n  ");
}

/** The same over plain HTTP; without a file where the server has the program already. */
export function asCurl(request: Submission, filename: string | null, origin: string, swept?: Swept): string {
  const body = swept
    ? { name: swept.name, run: request, sweep: { kind: "grid", parameters: swept.grid } }
    : request;
  return `${filename === null ? "" : uploadAsCurl(filename, origin)}curl -sS ${origin}/api/v1/runs${swept ? ":sweep" : ""} \\
  -H "Authorization: Bearer $DRUMLINE_TOKEN" -H 'Content-Type: application/json' \\
  -H "Idempotency-Key: $(openssl rand -hex 16)" \\
  -d ${shell(exactText(body, 2))}`;
}

function uploadAsCurl(filename: string, origin: string): string {
  const type = filename.endsWith(".zip") ? "application/zip" : "text/x-python";
  return `# the program first; the same bytes always give the same bundle
curl -sS ${origin}/api/v1/bundles?filename=${encodeURIComponent(filename)} \\
  -H "Authorization: Bearer $DRUMLINE_TOKEN" -H 'Content-Type: ${type}' \\
  --data-binary @${shell(filename)}

`;
}

/** A spec of the contracts that says so much; nothing where all is as usual. */
function spec(name: string, fields: [string, JsonValue][]): string | false {
  return (
    fields.length > 0 && `${name}(${fields.map(([field, value]) => `${field}=${python(value)}`).join(", ")})`
  );
}
