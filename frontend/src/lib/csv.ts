/** One cell: RFC 4180 quoting; a leading sign that a spreadsheet would run as a formula is kept as text. */
export function cell(text: string): string {
  const safe = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
