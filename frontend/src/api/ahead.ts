/** Answers that `src/start.js` asked for while this code was on its way. */

declare global {
  interface Window {
    /** By path and query; missing where the script did not run. */
    askedAhead?: Map<string, Promise<Response>>;
  }
}

/** The answer to this request, if it was asked for ahead. Each is given once: whoever asks again wants it new. */
export function takeAhead({ method, url }: Request): Promise<Response> | undefined {
  const asked = globalThis.window?.askedAhead;
  if (!asked?.size || method !== "GET") return undefined;
  const { pathname, search } = new URL(url);
  const answer = asked.get(pathname + search);
  asked.delete(pathname + search);
  return answer;
}

/** Answers that nobody took by then are none to a question of later, nor of another person. */
export function forgetAhead(): void {
  globalThis.window?.askedAhead?.clear();
}
