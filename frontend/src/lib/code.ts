/** Values as other languages write them, for snippets to copy. */
import type { JsonValue } from "@/api/schema";

/** A JSON value as Python writes it. */
export function python(value: JsonValue): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return quote(value);
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value)
      .map(([key, item]) => `${quote(key)}: ${python(item as JsonValue)}`)
      .join(", ")}}`;
  }
  return String(value);
}

/** A string literal of Python. */
export function quote(text: string): string {
  return JSON.stringify(text);
}

/** Quoted for a POSIX shell where it needs to be. */
export function shell(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}
