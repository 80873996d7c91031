/** Keyboard shortcuts: single keys and sequences such as `g r`, off while something is being typed. */
import { useEffect, useEffectEvent, useSyncExternalStore } from "react";

export interface Shortcut {
  /** `j`, `?`, `mod+k`, or a sequence `g r`. */
  readonly keys: string;
  readonly meaning: string;
  readonly group: "Go to" | "List" | "Run" | "View";
}

interface Registered extends Shortcut {
  readonly run: (event: KeyboardEvent) => void;
}

const SEQUENCE_MS = 900;
let registered: readonly Registered[] = [];
const watchers = new Set<() => void>();
let prefix = "";
let prefixAt = 0;

/** Registers a shortcut while the component is on the page and `enabled`; the newest of equal keys wins. */
export function useShortcut(shortcut: Shortcut, run: (event: KeyboardEvent) => void, enabled = true): void {
  const { keys, meaning, group } = shortcut;
  const onPress = useEffectEvent(run);
  useEffect(() => {
    if (!enabled) return;
    const entry: Registered = { keys, meaning, group, run: (event) => onPress(event) };
    change([...registered, entry]);
    return () => change(registered.filter((other) => other !== entry));
  }, [keys, meaning, group, enabled]);
}

/** What is registered now: the lines of the keyboard sheet. */
export function useShortcuts(): readonly Shortcut[] {
  return useSyncExternalStore(watch, () => registered);
}

/** Listens for key presses. Called once. */
export function watchKeyboard(): () => void {
  document.addEventListener("keydown", onKeyDown);
  return () => document.removeEventListener("keydown", onKeyDown);
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || event.altKey) return;
  const modified = event.ctrlKey || event.metaKey;
  if (!modified && isTyping(event.target)) return;
  const key = modified ? `mod+${event.key.toLowerCase()}` : event.key;
  const sequence = event.timeStamp - prefixAt < SEQUENCE_MS ? `${prefix} ${key}` : key;
  const hit = find(sequence) ?? find(key);
  prefix = !hit && registered.some(({ keys }) => keys.startsWith(`${key} `)) ? key : "";
  prefixAt = event.timeStamp;
  if (!hit) return;
  event.preventDefault();
  hit.run(event);
}

function find(keys: string): Registered | undefined {
  return registered.findLast((entry) => entry.keys === keys);
}

function isTyping(target: EventTarget | null): boolean {
  const element = target instanceof Element ? (target.shadowRoot?.activeElement ?? target) : null;
  if (!(element instanceof HTMLElement)) return false;
  if (document.querySelector("[role=dialog],[role=listbox]")) return true;
  return element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName);
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

function change(next: readonly Registered[]): void {
  registered = next;
  for (const watcher of [...watchers]) watcher();
}
