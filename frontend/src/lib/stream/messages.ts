/** What a live stream tells, and where it is told from. */

export type Topic = "runs" | "fleet" | `run:${string}`;

export interface LiveEvent {
  readonly run: string;
  readonly seq: number;
  readonly at: string;
  readonly kind: string;
  readonly attempt?: string | null;
  readonly body: Readonly<Record<string, unknown>>;
}

export interface LiveHint {
  readonly topic: "runs" | "fleet";
  readonly run?: string | null;
  readonly host?: string | null;
}

export type LiveMessage =
  | { type: "event"; event: LiveEvent }
  | { type: "hint"; hint: LiveHint }
  /** Events may have been missed: fetch everything of the topic again. */
  | { type: "resync"; topic: Topic };

export interface ConnectionStatus {
  readonly phase: "idle" | "connecting" | "live" | "stale" | "polling";
  /** When the connection was last known to be whole, in milliseconds; for the age of stale values. */
  readonly freshAt: number | null;
}

export type Listener = (message: LiveMessage) => void;

/** Where a listener begins. */
export interface Begin {
  /** Of a run: the newest event that the listener knows. */
  from?: number | undefined;
  /** It has listened before: hints may have been missed since. */
  again?: boolean | undefined;
}

/** Brings messages of topics: a connection of this page's own, or the one that all tabs share. */
export interface LiveConnection {
  /** Hears of `topic` until the returned function is called. */
  subscribe(topic: Topic, listener: Listener, begin: Begin): () => void;
  status(): ConnectionStatus;
  watch(watcher: () => void): () => void;
  /** Somebody else is signed in now, or nobody: starts over. */
  restart(): void;
}

export function runOf(topic: Topic): string | null {
  return topic.startsWith("run:") ? topic.slice(4) : null;
}

export function topicOf(message: LiveMessage): Topic {
  if (message.type === "event") return `run:${message.event.run}`;
  return message.type === "hint" ? message.hint.topic : message.topic;
}
