// Names the functions of frontend/src that ran, from what Chromium covered and the source maps of the same build.
// Usage: node functions.mjs FOLDER_WITH_ASSETS_AND_MAPS FRONTEND_SRC < coverage.json
import { existsSync, readFileSync } from "node:fs";
import { SourceMap } from "node:module";
import { basename, dirname, join, relative, resolve } from "node:path";

const [folder, sources] = process.argv.slice(2);

/** Line and column of an offset, both from 0. */
function position(text, offset) {
  const before = text.slice(0, offset).split("\n");
  return [before.length - 1, before.at(-1).length];
}

/** The functions of one script that have a name: callbacks without one stand in another. */
function* functionsOf({ url, functions }) {
  const script = join(folder, "assets", basename(new URL(url).pathname));
  if (!existsSync(`${script}.map`)) throw new Error(`${url} was not built with a source map into ${folder}`);
  const text = readFileSync(script, "utf8");
  const map = new SourceMap(JSON.parse(readFileSync(`${script}.map`, "utf8")));
  for (const { functionName, ranges } of functions) {
    const { startOffset, endOffset, count } = ranges[0];
    if (count === 0 || functionName === "") continue;
    const first = map.findEntry(...position(text, startOffset));
    const last = map.findEntry(...position(text, endOffset - 1));
    if (first.originalSource === undefined) continue;
    const file = relative(sources, resolve(dirname(script), first.originalSource));
    if (file.startsWith("..")) continue;
    const line = first.originalLine + 1;
    const end = last.originalSource === first.originalSource ? last.originalLine + 1 : line;
    yield { file: `frontend/src/${file}`, line, lines: Math.max(1, end - line + 1), name: first.name ?? "" };
  }
}

const scripts = JSON.parse(readFileSync(0, "utf8")).filter((each) => each.url.includes("/assets/"));
process.stdout.write(JSON.stringify(scripts.flatMap((script) => [...functionsOf(script)])));
