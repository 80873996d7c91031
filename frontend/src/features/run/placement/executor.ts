const WORDS: Record<string, string> = {
  spmd: "one program",
  mpmd: "per device",
};

/** How the steps were run, in words: each executor once, as even and ragged batches may be run differently. */
export function executorsInWords(executor: string | null | undefined): string[] {
  const names = (executor ?? "")
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
  const chosen = names.filter((name) => name !== "auto");
  if (chosen.length === 0) return names.length > 0 ? ["chosen at the first step"] : [];
  return chosen.map((name) => (WORDS[name] ? `${WORDS[name]} (${name})` : name));
}
