// Fails when the built dashboard outgrows its size budgets (gzip -9, KB of 1024 bytes).
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const LIMITS = { entry: 150, lazy: 130, css: 20, fonts: 100 };
const dist = new URL("../dist/", import.meta.url).pathname;
const manifest = JSON.parse(readFileSync(join(dist, ".vite/manifest.json"), "utf8"));

const read = (file) => readFileSync(join(dist, file));
const gzipKb = (files) =>
  files.reduce((sum, file) => sum + gzipSync(read(file), { level: 9 }).length, 0) / 1024;

function staticClosure(key, seen = new Set()) {
  if (seen.has(key)) return seen;
  seen.add(key);
  for (const next of manifest[key].imports ?? []) staticClosure(next, seen);
  return seen;
}

// The file that is the entry for the bundler may hold nothing: what counts is what the page asks for.
const html = readFileSync(join(dist, "index.html"), "utf8");
const asked = new Set([...html.matchAll(/src="\/(assets\/[^"]+\.js)"/g)].map(([, file]) => file));
const entry = new Set();
for (const key of Object.keys(manifest)) if (asked.has(manifest[key].file)) staticClosure(key, entry);
const jsOf = (keys) =>
  [...new Set([...keys].map((key) => manifest[key].file))].filter((file) => file.endsWith(".js"));
const css = new Set(
  Object.values(manifest).flatMap((chunk) => [
    ...(chunk.css ?? []),
    ...(chunk.file.endsWith(".css") ? [chunk.file] : []),
  ]),
);
const latinFonts = new Set(
  Object.values(manifest)
    .flatMap((chunk) => [chunk.file, ...(chunk.assets ?? [])])
    .filter((file) => /-latin-(wght|standard|opsz)[^/]*normal.*\.woff2$/.test(file)),
);

const rows = [
  ["entry JS", gzipKb(jsOf(entry)), LIMITS.entry],
  ["CSS, all", gzipKb([...css]), LIMITS.css],
  ["fonts, latin", [...latinFonts].reduce((sum, file) => sum + read(file).length, 0) / 1024, LIMITS.fonts],
];
for (const key of Object.keys(manifest)) {
  if (entry.has(key) || !manifest[key].file.endsWith(".js")) continue;
  rows.push([`lazy ${manifest[key].file.replace("assets/", "")}`, gzipKb([manifest[key].file]), LIMITS.lazy]);
}

let over = false;
for (const [name, kb, limit] of rows.sort((a, b) => b[1] - a[1])) {
  const bad = kb > limit;
  over ||= bad;
  process.stdout.write(`${bad ? "OVER" : "ok  "} ${kb.toFixed(1).padStart(7)} KB of ${limit}  ${name}\n`);
}
if (latinFonts.size === 0) {
  process.stdout.write("OVER no latin font found: is it still self-hosted?\n");
  over = true;
}
// Only as the first line does the browser see it; whatever puts a line before it undoes it without a word.
const HINT = "//# allFunctionsCalledOnLoad\n";
const chunks = jsOf(Object.keys(manifest)).filter((file) => !/start-[^/]*$/.test(file));
const unhinted = chunks.filter((file) => !read(file).toString().startsWith(HINT));
for (const file of unhinted) process.stdout.write(`SLOW ${file} does not begin with ${HINT}`);
process.exit(over || unhinted.length > 0 ? 1 : 0);
