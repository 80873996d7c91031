import type { Run } from "@/api/schema";
import type { Copyable } from "@/components/ui/copy-menu";
import { quote, shell } from "@/lib/code";

/** How to reach this run from elsewhere: what the page shows, the SDK, the CLI and plain HTTP show too. */
export function reachRun(run: Pick<Run, "id">, origin: string): Copyable[] {
  return [
    { name: "Python", text: asPython(run.id, origin), note: "drumline.Client" },
    { name: "CLI", text: asCli(run.id, origin), note: "drumline watch, logs" },
    { name: "curl", text: asCurl(run.id, origin), note: "plain HTTP" },
  ];
}

function asPython(id: string, origin: string): string {
  return `from drumline import Client

run = Client(${quote(origin)}).get(${quote(id)})
print(run.wait().result)
for segment in run.logs():
    print(segment.text, end="")
`;
}

function asCli(id: string, origin: string): string {
  const url = shell(origin);
  return `drumline watch ${shell(id)} --url ${url}
drumline logs ${shell(id)} --follow --url ${url}
`;
}

function asCurl(id: string, origin: string): string {
  const address = `${origin}/api/v1/runs/${encodeURIComponent(id)}`;
  return `curl -sS ${shell(address)} -H "Authorization: Bearer $DRUMLINE_TOKEN"
curl -sS ${shell(`${address}/logs/raw`)} -H "Authorization: Bearer $DRUMLINE_TOKEN"
`;
}
