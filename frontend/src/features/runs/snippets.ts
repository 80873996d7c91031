import type { Copyable } from "@/components/ui/copy-menu";
import { python, quote, shell } from "@/lib/code";
import { type ParsedFilter, toQuery } from "./filter";

/** The list as it is filtered here, from elsewhere. */
export function listRuns(filter: ParsedFilter, oldestFirst: boolean, origin: string): Copyable[] {
  return [
    { name: "Python", text: asPython(filter, oldestFirst, origin), note: "drumline.Client" },
    { name: "CLI", text: asCli(filter, oldestFirst, origin), note: "drumline ps" },
    { name: "curl", text: asCurl(filter, oldestFirst, origin), note: "plain HTTP" },
  ];
}

function asPython(filter: ParsedFilter, oldestFirst: boolean, origin: string): string {
  const { state = [], job, version, owner, batch, label = [], q } = toQuery(filter, undefined);
  const labels = Object.fromEntries(
    label.map((each) => [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)]),
  );
  const asked = [
    state.length > 0 && `states=${python([...state])}`,
    job && `job=${quote(job)}`,
    version && `version=${version}`,
    owner && `owner=${quote(owner)}`,
    batch && `batch=${quote(batch)}`,
    label.length > 0 && `labels=${python(labels)}`,
    q && `search=${quote(q)}`,
    oldestFirst && 'sort="created"',
  ].filter(Boolean);
  return `from drumline import Client

for run in Client(${quote(origin)}).list(${asked.join(", ")}):
    print(run.id, run.job, run.state)
`;
}

function asCli(filter: ParsedFilter, oldestFirst: boolean, origin: string): string {
  const { state = [], job, version, owner, batch, label = [], q } = toQuery(filter, undefined);
  const flags = [
    ...(q ? [shell(q)] : []),
    ...state.map((each) => `--state ${each}`),
    ...(job ? [`--job ${shell(job)}`] : []),
    ...(version ? [`--version ${version}`] : []),
    ...(owner ? [`--owner ${shell(owner)}`] : []),
    ...(batch ? [`--batch ${shell(batch)}`] : []),
    ...label.map((each) => `--label ${shell(each)}`),
    ...(oldestFirst ? ["--sort created"] : []),
  ];
  return `${["drumline ps", ...flags, `--url ${shell(origin)}`].join(" ")}\n`;
}

function asCurl(filter: ParsedFilter, oldestFirst: boolean, origin: string): string {
  const { state = [], job, version, owner, batch, label = [], q } = toQuery(filter, undefined);
  const query = new URLSearchParams([
    ...state.map((each) => ["state", each]),
    ...(job ? [["job", job]] : []),
    ...(version ? [["version", String(version)]] : []),
    ...(owner ? [["owner", owner]] : []),
    ...(batch ? [["batch", batch]] : []),
    ...label.map((each) => ["label", each]),
    ...(q ? [["q", q]] : []),
    ...(oldestFirst ? [["sort", "created"]] : []),
  ]);
  const address = `${origin}/api/v1/runs${query.size > 0 ? `?${query}` : ""}`;
  return `curl -sS ${shell(address)} -H "Authorization: Bearer $DRUMLINE_TOKEN"\n`;
}
