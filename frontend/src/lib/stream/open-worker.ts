/** Starts the shared worker, or reaches the one that runs. Unlike Web Locks, shared workers need no HTTPS. */
import workerUrl from "./worker?sharedworker&url";

/** What is used of Trusted Types, which TypeScript's own library does not know yet. */
interface PolicyFactory {
  createPolicy(
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ): {
    createScriptURL(url: string): string;
  };
}

/** The page's policy lets scripts be loaded through this policy only, and it knows one. */
const policy = (globalThis as { trustedTypes?: PolicyFactory }).trustedTypes?.createPolicy("drumline", {
  createScriptURL: (url) => {
    if (url !== workerUrl) throw new TypeError(`${url} is no script of the dashboard`);
    return url;
  },
});

export function openSharedWorker(onError: () => void): MessagePort {
  const worker = new SharedWorker(policy?.createScriptURL(workerUrl) ?? workerUrl, {
    type: "module",
    name: "drumline-live",
  });
  worker.onerror = onError;
  return worker.port;
}
