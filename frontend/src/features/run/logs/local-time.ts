/** What a field for a local time shows of a moment: `2026-11-20T15:03:22`. */
export function toLocalTime(moment: string): string {
  const date = new Date(moment);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** The moment that such a field names, in UTC; none while it is not filled in, as a browser gives it then. */
export function fromLocalTime(text: string): string | undefined {
  const at = new Date(text).getTime();
  return Number.isNaN(at) ? undefined : new Date(at).toISOString();
}

/** A moment of the address, with its date, as the server takes it: `2026-11-20T14:03:22.000Z`; none if it is none. */
export function momentOf(text: string | undefined): string | undefined {
  return text && /^\d{4}-\d\d-\d\dT/.test(text) ? fromLocalTime(text) : undefined;
}
