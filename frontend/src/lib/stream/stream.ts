/** The live stream of a tab: every view listens here, whichever connection the messages come over. */
import {
  type ConnectionStatus,
  type Listener,
  type LiveConnection,
  type LiveMessage,
  runOf,
  type Topic,
  topicOf,
} from "./messages";

export interface LiveStatus extends ConnectionStatus {
  readonly paused: boolean;
  /** Messages held back while paused. */
  readonly waiting: number;
}

const MAX_WAITING = 5_000;

export class LiveStream {
  readonly #connection: LiveConnection;
  readonly #listeners = new Map<Topic, Set<Listener>>();
  readonly #watchers = new Set<() => void>();
  /** The last event that was told of each run. */
  readonly #cursors = new Map<string, number>();
  /** How to stop what is heard over the connection. */
  readonly #heard = new Map<Topic, () => void>();
  #suspended = false;
  #held: LiveMessage[] = [];
  #status: LiveStatus;

  constructor(connection: LiveConnection) {
    this.#connection = connection;
    this.#status = { ...connection.status(), paused: false, waiting: 0 };
    connection.watch(() => this.#set(connection.status()));
  }

  /**
   * Hears of `topic` until the returned function is called. For a run, `from` is the newest event that the caller's
   * answer already holds (`Run.last_event`); the stream begins after it.
   */
  subscribe(topic: Topic, listener: Listener, from?: number): () => void {
    const run = runOf(topic);
    const seen = run ? this.#cursors.get(run) : undefined;
    if (run && from !== undefined && seen === undefined) this.#cursors.set(run, from);
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners.add(listener));
    // Another listener is already past this one's answer: what lies between has been told and cannot be told again.
    if (from !== undefined && seen !== undefined && seen > from) {
      queueMicrotask(() => listeners.has(listener) && listener({ type: "resync", topic }));
    }
    this.#hear(topic, false);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(topic) === listeners) this.#forget(topic, run);
    };
  }

  status = (): LiveStatus => this.#status;

  watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  /** Holds messages back until `resume`; they keep arriving. */
  pause(): void {
    this.#set({ paused: true });
  }

  resume(): void {
    const held = this.#held;
    this.#held = [];
    this.#set({ paused: false, waiting: 0 });
    for (const message of held) this.#tell(message);
  }

  /** Listens to nothing while nobody looks; `wake` resumes where it was. */
  suspend(): void {
    this.#suspended = true;
    for (const stop of this.#heard.values()) stop();
    this.#heard.clear();
  }

  wake(): void {
    if (!this.#suspended) return;
    this.#suspended = false;
    for (const topic of this.#listeners.keys()) this.#hear(topic, true);
  }

  /** Somebody else is signed in now, or nobody. */
  restart(): void {
    this.#connection.restart();
  }

  #hear(topic: Topic, again: boolean): void {
    if (this.#suspended || this.#heard.has(topic)) return;
    const run = runOf(topic);
    const from = run ? this.#cursors.get(run) : undefined;
    this.#heard.set(
      topic,
      this.#connection.subscribe(topic, (message) => this.#receive(message), { from, again }),
    );
  }

  #forget(topic: Topic, run: string | null): void {
    this.#listeners.delete(topic);
    if (run) this.#cursors.delete(run);
    this.#heard.get(topic)?.();
    this.#heard.delete(topic);
  }

  /** A connection may tell an event again, such as one that another tab had not seen. */
  #receive(message: LiveMessage): void {
    if (message.type === "event") {
      const { run, seq } = message.event;
      const seen = this.#cursors.get(run);
      if (seen !== undefined && seq <= seen) return;
      this.#cursors.set(run, seq);
    }
    if (this.#status.paused) this.#hold(message);
    else this.#tell(message);
  }

  #hold(message: LiveMessage): void {
    if (this.#held.length >= MAX_WAITING) {
      this.#held = [...this.#listeners.keys()].map((topic) => ({ type: "resync", topic }));
    } else {
      this.#held.push(message);
    }
    this.#set({ waiting: this.#held.length });
  }

  #tell(message: LiveMessage): void {
    for (const listener of [...(this.#listeners.get(topicOf(message)) ?? [])]) listener(message);
  }

  #set(change: Partial<LiveStatus>): void {
    this.#status = { ...this.#status, ...change };
    for (const watcher of [...this.#watchers]) watcher();
  }
}
