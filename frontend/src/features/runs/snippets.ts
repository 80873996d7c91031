import type { Copyable } from "@/components/ui/copy-menu";
import { python, quote, shell } from "@/lib/code";
import { wholeExpression } from "./expression";
import { type ParsedFilter, toQuery } from "./filter";
import { columnNames, type RunsSearch } from "./search";

/** The list as it is filtered here, from elsewhere. */
export function listRuns(filter: ParsedFilter, search: RunsSearch, origin: string): Copyable[] {
  const isPlain =
    !search.where && !search.columns && !search.archived && [undefined, "created"].includes(search.sort);
  if (!isPlain) return byExpression(filter, search, origin);
  const oldestFirst = search.sort === "created";
  return [
    { name: "Python", text: asPython(filter, oldestFirst, origin), note: "drumline.Client" },
    { name: "CLI", text: asCli(filter, oldestFirst, origin), note: "drumline ps" },
    { name: "curl", text: asCurl(filter, oldestFirst, origin), note: "plain HTTP" },
  ];
}

function byExpression(filter: ParsedFilter, search: RunsSearch, origin: string): Copyable[] {
  const where = wholeExpression({ ...toQuery(filter, undefined), where: search.where });
  const { sort, archived } = search;
  const columns = columnNames(search.columns);
  const asked = [
    quote(where),
    sort && `sort=${quote(sort)}`,
    columns.length > 0 && `columns=${python(columns)}`,
    archived && "archived=True",
  ].filter(Boolean);
  const flags = [
    where && `--where ${shell(where)}`,
    sort && `--sort ${shell(sort)}`,
    columns.length > 0 && `--columns ${shell(columns.join(","))}`,
    archived && "--archived",
    `--url ${shell(origin)}`,
  ].filter(Boolean);
  const query = new URLSearchParams([
    ["where", where],
    ["sort", sort ?? "-created"],
    ...columns.map((name) => ["column", name]),
    ...(archived ? [["archived", "true"]] : []),
  ]);
  const address = shell(`${origin}/api/v1/runs?${query}`);
  const code = `for run in Client(${quote(origin)}).runs(${asked.join(", ")}):\n    print(run.id, run.job, run.fields)\n`;
  return [
    { name: "Python", text: `from drumline import Client\n\n${code}`, note: "drumline.Client" },
    { name: "CLI", text: `drumline ps ${flags.join(" ")}\n`, note: "drumline ps" },
    {
      name: "curl",
      text: `curl -sS ${address} -H "Authorization: Bearer $DRUMLINE_TOKEN"\n`,
      note: "plain HTTP",
    },
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
