/** Tells the other tabs of this browser that somebody signed in or out: they share the session, and so its end. */
let channel: BroadcastChannel | undefined;

function open(): BroadcastChannel {
  channel ??= new BroadcastChannel("drumline-session");
  return channel;
}

export function tellSessionChange(): void {
  open().postMessage(null);
}

/** Calls `changed` when another tab signed in or out. */
export function onSessionChange(changed: () => void): void {
  open().onmessage = changed;
}
