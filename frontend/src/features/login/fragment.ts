/** The one-time code of an address such as `/login#code=...`; null where there is none. */
export function codeInFragment(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("code");
}

/** Where to go after signing in: a path of this dashboard and nothing else, so that a link cannot lead away. */
export function localPath(next: string | undefined): string {
  if (!next?.startsWith("/") || /^\/[/\\]/.test(next) || next.startsWith("/login")) return "/";
  return next;
}
