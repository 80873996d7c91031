import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const server = process.env.DRUMLINE_URL ?? "http://127.0.0.1:7700";

/**
 * Says of every script that its functions are wanted at once. Chromium then compiles them beside the page's thread while
 * the script arrives; else that thread parses each of them again when it is first called. To other browsers it is a comment.
 */
function compileAhead(): Plugin {
  return {
    name: "compile-ahead",
    apply: "build",
    augmentChunkHash: () => "compile-ahead",
    // Only the first line of a script counts, so after everyone who adds to it.
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        for (const one of Object.values(bundle))
          if (one.type === "chunk") one.code = `//# allFunctionsCalledOnLoad\n${one.code}`;
      },
    },
  };
}

/** The script before the page's own gets a name of its content: a browser that has it asks for it no more, and waits for none. */
function startScript(): Plugin {
  const source = "/src/start.js";
  return {
    name: "start-script",
    apply: "build",
    buildStart() {
      const path = fileURLToPath(new URL(`.${source}`, import.meta.url));
      this.emitFile({ type: "asset", name: "start.js", source: readFileSync(path, "utf8") });
    },
    transformIndexHtml: {
      order: "post",
      handler(html, { bundle = {} }) {
        const script = Object.values(bundle).find(
          (one) => one.type === "asset" && one.names.includes("start.js"),
        );
        if (!script) throw new Error("there is no start.js");
        return html.replace(source, `/${script.fileName}`);
      },
    },
  };
}

export default defineConfig({
  plugins: [react(), tailwindcss(), startScript(), compileAhead()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    manifest: true,
    // The page's policy is script-src 'self' and font-src 'self': nothing may become a data: address or an inline script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The entry names every chunk that may be loaded: 42 bits tell two versions of one apart, and cost it 0.1 kB less than 48.
    rolldownOptions: {
      output: {
        chunkFileNames: ({ name }) => `assets/${name.split("~")[0]}-[hash:7].js`,
        codeSplitting: {
          groups: [
            // Each file costs the browser a request and milliseconds of its main thread: what the first page needs is one.
            { name: "initial", tags: ["$initial"], priority: 1 },
            // What several pages share is in few files, and no page loads much that it doesn't need.
            { name: "shared", minShareCount: 2, entriesAware: true, entriesAwareMergeThreshold: 20_000 },
          ],
        },
      },
    },
  },
  worker: { format: "es" },
  server: {
    host: "127.0.0.1",
    // The example programs of the repository stand in the Submit page.
    fs: { allow: [".."] },
    // The API compares Origin with Host, so both reach it as the browser sent them.
    proxy: { "/api": { target: server, changeOrigin: false } },
  },
  test: {
    restoreMocks: true,
    unstubGlobals: true,
    // A page for each file of tests takes longer than the tests: only those of components get one.
    projects: [
      { extends: true, test: { name: "logic", environment: "node", include: ["src/**/*.test.ts"] } },
      {
        extends: true,
        test: { name: "components", environment: "happy-dom", include: ["src/**/*.test.tsx"] },
      },
    ],
  },
});
