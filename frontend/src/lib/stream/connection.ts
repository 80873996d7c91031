/**
 * One live connection. Topics of all views, and of all tabs where they share it, are multiplexed over a single EventSource; a
 * reconnect resumes each run from the last event that was seen, so nothing is lost or doubled. Where the connection fails
 * repeatedly, everything is fetched again at intervals instead.
 */
import {
  type Begin,
  type ConnectionStatus,
  type Listener,
  type LiveConnection,
  type LiveEvent,
  type LiveHint,
  type LiveMessage,
  runOf,
  type Topic,
  topicOf,
} from "./messages";

/** What the stream needs of its surroundings; a test hands in its own. */
export interface StreamHost {
  open(url: string): EventSource;
  /** Whether the server answers at all. */
  probe(): Promise<boolean>;
  now(): number;
  after(ms: number, run: () => void): () => void;
}

export const STREAM_URL = "/api/v1/stream";
export const POLL_MS = 5_000;
const RETRY_MS = [1_000, 2_000, 5_000, 10_000];
/** Pings are comments, which an EventSource swallows: a stream that is silent for so long has its server asked. */
const SILENCE_MS = 10_000;
/** A stream that is silent for so long is reopened, though its server answers: it may be half open. */
const MOST_SILENCE_MS = 60_000;
/** A server that takes a connection and says nothing for so long is not there. */
const CONNECT_MS = 8_000;
const PROBE_MS = 4_000;

export class Connection implements LiveConnection {
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
  #cancelReopen: (() => void) | null = null;
  #cancelWatchdog: (() => void) | null = null;
  #cancelPoll: (() => void) | null = null;
  #status: ConnectionStatus = { phase: "idle", freshAt: null };

  constructor(url: string, host: StreamHost) {
    this.#url = url;
    this.#host = host;
  }

  subscribe(topic: Topic, listener: Listener, { from, again = false }: Begin = {}): () => void {
    const run = runOf(topic);
    const seen = run ? this.#cursors.get(run) : undefined;
    if (run && from !== undefined && seen === undefined) this.#cursors.set(run, from);
    // Another listener is already past this one's answer: what lies between has been told and cannot be told again.
    if (from !== undefined && seen !== undefined && seen > from)
      this.#host.after(0, () => listener({ type: "resync", topic }));
    if (again && !run) this.#catchUp(topic, listener);
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners.add(listener));
    this.#scheduleOpen(0);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(topic) === listeners) this.#forget(topic, run);
    };
  }

  status = (): ConnectionStatus => this.#status;

  watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  restart(): void {
    this.#failures = 0;
    this.#stopPolling();
    this.#reopen(0);
  }

  /** Hints carry no cursor: who may have missed some fetches once, as soon as the topic is open. */
  #catchUp(topic: Topic, listener: Listener): void {
    const isOpen = this.#status.phase === "live" && this.#openTopics.split(",").includes(topic);
    if (isOpen) this.#host.after(0, () => listener({ type: "resync", topic }));
    else this.#gap.add(topic);
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
    if (topics === "") {
      this.#close();
      this.#failures = 0;
      this.#stopPolling();
      this.#set({ phase: "idle" });
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
    on("hint", (data) => this.#tell({ type: "hint", hint: data as LiveHint }));
  }

  #opened(): void {
    this.#failures = 0;
    this.#stopPolling();
    this.#heard();
    this.#set({ phase: "live" });
    // Hints carry no cursor: what changed while the connection was down is fetched once.
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
    this.#tell({ type: "event", event });
  }

  #failed(): void {
    this.#failures += 1;
    const freshAt = this.#status.phase === "live" ? this.#host.now() : this.#status.freshAt;
    // Once polled, the polls say whether the server answers.
    this.#set({ phase: this.#status.phase === "polling" ? "polling" : "stale", freshAt });
    if (this.#failures >= 2) this.#startPolling();
    this.#reopen(RETRY_MS[Math.min(this.#failures - 1, RETRY_MS.length - 1)] ?? POLL_MS);
  }

  /** The server cannot replay from our cursors: drop them, fetch again, and resume from the present. */
  #resync(): void {
    for (const topic of this.#listeners.keys()) {
      const run = runOf(topic);
      if (run) this.#cursors.delete(run);
    }
    this.#resyncTopics(() => true);
    this.#reopen(0);
  }

  #resyncTopics(which: (topic: Topic) => boolean): void {
    for (const topic of [...this.#listeners.keys()].filter(which)) this.#tell({ type: "resync", topic });
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

  #tell(message: LiveMessage): void {
    for (const listener of [...(this.#listeners.get(topicOf(message)) ?? [])]) listener(message);
  }

  #set(change: Partial<ConnectionStatus>): void {
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
      const timer = setTimeout(run, ms);
      return () => clearTimeout(timer);
    },
  };
}
