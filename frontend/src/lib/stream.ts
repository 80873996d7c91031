/**
 * The one live connection of a tab. Topics of all views are multiplexed over a single EventSource; a reconnect resumes each run
 * from the last event that was seen, so nothing is lost or doubled. Where the connection fails repeatedly, `poll` is called instead.
 */

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

export interface LiveStatus {
  readonly phase: "idle" | "connecting" | "live" | "stale" | "polling";
  readonly paused: boolean;
  /** When the connection was last known to be whole, in milliseconds; for the age of stale values. */
  readonly freshAt: number | null;
  /** Messages held back while paused. */
  readonly waiting: number;
}

/** What the stream needs of its surroundings; a test hands in its own. */
export interface StreamHost {
  open(url: string): EventSource;
  /** Whether the server answers at all. */
  probe(): Promise<boolean>;
  now(): number;
  after(ms: number, run: () => void): () => void;
}

type Listener = (message: LiveMessage) => void;

export const POLL_MS = 5_000;
const RETRY_MS = [1_000, 2_000, 5_000, 10_000];
/** Pings are comments, which an EventSource swallows: a stream that is silent for so long has its server asked. */
const SILENCE_MS = 10_000;
/** A stream that is silent for so long is opened anew, though its server answers: it may be half open. */
const MOST_SILENCE_MS = 60_000;
/** A server that takes a connection and says nothing for so long is not there. */
const CONNECT_MS = 8_000;
const PROBE_MS = 4_000;
const MAX_WAITING = 5_000;

export class LiveStream {
  readonly #host: StreamHost;
  readonly #url: string;
  readonly #listeners = new Map<Topic, Set<Listener>>();
  readonly #watchers = new Set<() => void>();
  readonly #cursors = new Map<string, number>();
  #source: EventSource | null = null;
  #openTopics = "";
  /** Topics whose hints may have been missed, as their last connection is gone. */
  readonly #gap = new Set<string>();
  #failures = 0;
  #suspended = false;
  #held: LiveMessage[] = [];
  #cancelReopen: (() => void) | null = null;
  #cancelWatchdog: (() => void) | null = null;
  #cancelPoll: (() => void) | null = null;
  #status: LiveStatus = { phase: "idle", paused: false, freshAt: null, waiting: 0 };

  constructor(url: string, host: StreamHost) {
    this.#url = url;
    this.#host = host;
  }

  /**
   * Hears of `topic` until the returned function is called. For a run, `from` is the newest event that the caller's
   * answer already holds (`Run.last_event`); the stream begins after it.
   */
  subscribe(topic: Topic, listener: Listener, from?: number): () => void {
    const run = runOf(topic);
    const seen = run ? this.#cursors.get(run) : undefined;
    if (run && from !== undefined && seen === undefined) this.#cursors.set(run, from);
    // Another listener is already past this one's answer: what lies between has been told and cannot be told again.
    if (from !== undefined && seen !== undefined && seen > from)
      this.#host.after(0, () => listener({ type: "resync", topic }));
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners.add(listener));
    this.#scheduleOpen(0);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(topic) === listeners) this.#forget(topic, run);
    };
  }

  /** The cursor of a run: the last event seen. */
  cursor(run: string): number | undefined {
    return this.#cursors.get(run);
  }

  status = (): LiveStatus => this.#status;

  watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  /** Holds messages back until `resume`; they go on arriving. */
  pause(): void {
    this.#set({ paused: true });
  }

  resume(): void {
    const held = this.#held;
    this.#held = [];
    this.#set({ paused: false, waiting: 0 });
    for (const message of held) this.#tell(message);
  }

  /** Gives the connection up while nobody looks (browsers allow six per server); `wake` resumes where it was. */
  suspend(): void {
    this.#suspended = true;
    this.#close();
  }

  wake(): void {
    if (!this.#suspended) return;
    this.#suspended = false;
    this.#scheduleOpen(0);
  }

  #forget(topic: Topic, run: string | null): void {
    this.#listeners.delete(topic);
    if (run) this.#cursors.delete(run);
    this.#scheduleOpen(0);
  }

  /** Reopens soon; several subscriptions of one render make one connection. */
  #scheduleOpen(delayMs: number): void {
    this.#cancelReopen?.();
    this.#cancelReopen = this.#host.after(delayMs, () => this.#open());
  }

  #open(): void {
    this.#cancelReopen = null;
    const topics = [...this.#listeners.keys()].sort().join(",");
    if (this.#suspended || topics === "") {
      this.#close();
      if (topics === "") this.#set({ phase: "idle" });
      return;
    }
    if (this.#source && topics === this.#openTopics) return;
    this.#close();
    this.#openTopics = topics;
    const source = this.#host.open(`${this.#url}?${this.#query(topics)}`);
    this.#source = source;
    this.#cancelWatchdog = this.#host.after(CONNECT_MS, () => this.#failed());
    if (this.#status.phase === "idle") this.#set({ phase: "connecting" });
    this.#listen(source);
  }

  #query(topics: string): string {
    const from = [...this.#listeners.keys()]
      .map(runOf)
      .filter((run): run is string => run !== null && this.#cursors.has(run))
      .map((run) => `${run}=${this.#cursors.get(run)}`)
      .sort()
      .join(",");
    const query = `topics=${encodeURIComponent(topics)}`;
    return from ? `${query}&from=${encodeURIComponent(from)}` : query;
  }

  #listen(source: EventSource): void {
    const current = (run: () => void) => () => {
      if (this.#source === source) run();
    };
    source.addEventListener(
      "open",
      current(() => this.#opened()),
    );
    source.addEventListener(
      "error",
      current(() => this.#failed()),
    );
    source.addEventListener(
      "resync",
      current(() => this.#resync()),
    );
    const on = (name: string, handle: (data: unknown) => void) =>
      source.addEventListener(name, (message: MessageEvent<string>) => {
        if (this.#source !== source) return;
        this.#heard();
        handle(JSON.parse(message.data));
      });
    on("run", (data) => this.#event(data as LiveEvent));
    on("hint", (data) => this.#deliver({ type: "hint", hint: data as LiveHint }));
  }

  #opened(): void {
    this.#failures = 0;
    this.#stopPolling();
    this.#heard();
    this.#set({ phase: "live" });
    // Hints carry no cursor: what changed while the line was down is fetched once.
    const gap = new Set(this.#gap);
    this.#gap.clear();
    this.#resyncTopics((topic) => runOf(topic) === null && gap.has(topic));
  }

  #heard(): void {
    this.#set({ freshAt: this.#host.now() });
    this.#watch(this.#host.now());
  }

  /** Asks after the server again and again while the stream says nothing since `heardAt`. */
  #watch(heardAt: number): void {
    const source = this.#source;
    this.#cancelWatchdog?.();
    this.#cancelWatchdog = this.#host.after(SILENCE_MS, async () => {
      this.#cancelWatchdog = null;
      const answered = await this.#host.probe();
      // Told meanwhile by a message, or by another connection.
      if (this.#source !== source || this.#cancelWatchdog) return;
      if (!answered) this.#failed();
      else if (this.#host.now() - heardAt >= MOST_SILENCE_MS) this.#reopen(0);
      else {
        this.#set({ freshAt: this.#host.now() });
        this.#watch(heardAt);
      }
    });
  }

  #event(event: LiveEvent): void {
    const seen = this.#cursors.get(event.run);
    if (seen !== undefined && event.seq <= seen) return;
    this.#cursors.set(event.run, event.seq);
    this.#deliver({ type: "event", event });
  }

  #failed(): void {
    this.#failures += 1;
    const freshAt = this.#status.phase === "live" ? this.#host.now() : this.#status.freshAt;
    // Once polled, the polls say whether the server answers.
    this.#set({ phase: this.#status.phase === "polling" ? "polling" : "stale", freshAt });
    if (this.#failures >= 2) this.#startPolling();
    this.#reopen(RETRY_MS[Math.min(this.#failures - 1, RETRY_MS.length - 1)] ?? POLL_MS);
  }

  /** The server cannot replay from our cursors: drop them, fetch again, and go on from the present. */
  #resync(): void {
    for (const topic of this.#listeners.keys()) {
      const run = runOf(topic);
      if (run) this.#cursors.delete(run);
    }
    this.#resyncTopics(() => true);
    this.#reopen(0);
  }

  #resyncTopics(which: (topic: Topic) => boolean): void {
    for (const topic of [...this.#listeners.keys()].filter(which)) this.#deliver({ type: "resync", topic });
  }

  #reopen(delayMs: number): void {
    this.#close();
    this.#scheduleOpen(delayMs);
  }

  #close(): void {
    this.#cancelWatchdog?.();
    this.#cancelWatchdog = null;
    if (this.#source) for (const topic of this.#openTopics.split(",")) this.#gap.add(topic);
    this.#source?.close();
    this.#source = null;
    this.#openTopics = "";
    if (this.#suspended) this.#stopPolling();
  }

  #startPolling(): void {
    if (this.#cancelPoll) return;
    const schedule = () => {
      const cancel = this.#host.after(POLL_MS, async () => {
        const answered = await this.#host.probe();
        if (this.#cancelPoll !== cancel) return;
        this.#polled(answered);
        schedule();
      });
      this.#cancelPoll = cancel;
    };
    schedule();
  }

  #polled(answered: boolean): void {
    if (!answered) {
      this.#set({ phase: "stale" });
      return;
    }
    this.#set({ phase: "polling", freshAt: this.#host.now() });
    this.#resyncTopics(() => true);
  }

  #stopPolling(): void {
    this.#cancelPoll?.();
    this.#cancelPoll = null;
  }

  #deliver(message: LiveMessage): void {
    if (!this.#status.paused) {
      this.#tell(message);
      return;
    }
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

export function browserHost(): StreamHost {
  return {
    open: (url) => new EventSource(url),
    probe: () =>
      fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(PROBE_MS) }).then(
        (answer) => answer.ok,
        () => false,
      ),
    now: () => Date.now(),
    after: (ms, run) => {
      const timer = window.setTimeout(run, ms);
      return () => window.clearTimeout(timer);
    },
  };
}

function runOf(topic: Topic): string | null {
  return topic.startsWith("run:") ? topic.slice(4) : null;
}

function topicOf(message: LiveMessage): Topic {
  if (message.type === "event") return `run:${message.event.run}`;
  return message.type === "hint" ? message.hint.topic : message.topic;
}
