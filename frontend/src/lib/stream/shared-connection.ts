/** A tab's end of the connection that all tabs share; its own connection where the browser lets it share none. */

import type { Begin, ConnectionStatus, Listener, LiveConnection, LiveMessage, Topic } from "./messages";
import { runOf, topicOf } from "./messages";
import { type FromTabHub, HEARTBEAT_MS, type Port, type ToTabHub } from "./tab-hub";

/** A hub that has never answered after so long does not run in this browser. */
const FIRST_ANSWER_MS = 8_000;

interface SharedConnectionHost {
  /** Reaches the hub, which begins if none runs; `onError` is called where it cannot begin. */
  open(onError: () => void): Port<ToTabHub, FromTabHub>;
  /** A connection of this tab's own. */
  own(): LiveConnection;
  after(ms: number, run: () => void): () => void;
}

interface Wanted {
  listener: Listener;
  begin: Begin;
  /** How to stop it on the tab's own connection. */
  stop?: () => void;
}

export class SharedConnection implements LiveConnection {
  readonly #host: SharedConnectionHost;
  readonly #wanted = new Map<Topic, Wanted>();
  readonly #watchers = new Set<() => void>();
  #port: Port<ToTabHub, FromTabHub> | null = null;
  #own: LiveConnection | null = null;
  #status: ConnectionStatus = { phase: "idle", freshAt: null };
  #sending = false;
  #answered = false;
  #everAnswered = false;
  #cancelHeartbeat: (() => void) | null = null;

  constructor(host: SharedConnectionHost) {
    this.#host = host;
  }

  /** One listener for each topic: `LiveStream` has them share it. */
  subscribe(topic: Topic, listener: Listener, begin: Begin): () => void {
    const wanted: Wanted = { listener, begin: { ...begin } };
    this.#wanted.set(topic, wanted);
    if (this.#own) this.#hearOwn(this.#own, topic, wanted);
    else this.#sendSoon();
    return () => {
      if (this.#wanted.get(topic) !== wanted) return;
      this.#wanted.delete(topic);
      wanted.stop?.();
      if (!this.#own) this.#sendSoon();
    };
  }

  status = (): ConnectionStatus => this.#own?.status() ?? this.#status;

  watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  restart(): void {
    if (this.#own) this.#own.restart();
    else this.#connected().postMessage({ kind: "restart" });
  }

  /** Changes of one moment make one message, which also leaves a page that is being closed. */
  #sendSoon(): void {
    if (this.#sending) return;
    this.#sending = true;
    queueMicrotask(() => {
      this.#sending = false;
      if (!this.#own) this.#send();
    });
  }

  #send(): void {
    const port = this.#connected();
    const topics = Object.fromEntries([...this.#wanted].map(([topic, { begin }]) => [topic, begin]));
    this.#answered = false;
    port.postMessage({ kind: "want", topics });
    // Said once, a topic that the hub has to start over is one that was heard before.
    for (const { begin } of this.#wanted.values()) begin.again = true;
    this.#cancelHeartbeat?.();
    this.#cancelHeartbeat = null;
    if (this.#wanted.size === 0) {
      this.#tell({ phase: "idle" });
      return;
    }
    this.#cancelHeartbeat = this.#host.after(this.#everAnswered ? HEARTBEAT_MS : FIRST_ANSWER_MS, () =>
      this.#heartbeat(),
    );
  }

  #heartbeat(): void {
    if (!this.#everAnswered) {
      this.#fallBack();
      return;
    }
    // The process that ran the hub is gone. Whoever asks first starts it again.
    if (!this.#answered) this.#leave();
    this.#send();
  }

  #connected(): Port<ToTabHub, FromTabHub> {
    if (!this.#port) {
      this.#port = this.#host.open(() => this.#fallBack());
      this.#port.onmessage = ({ data }) => this.#hear(data);
    }
    return this.#port;
  }

  #leave(): void {
    if (this.#port) this.#port.onmessage = null;
    this.#port = null;
  }

  #hear(said: FromTabHub): void {
    this.#answered = this.#everAnswered = true;
    if (said.kind === "message") this.#receive(said.message);
    else this.#tell(this.#wanted.size === 0 ? { phase: "idle" } : said.status);
  }

  #receive(message: LiveMessage): void {
    const wanted = this.#wanted.get(topicOf(message));
    if (!wanted) return;
    if (message.type === "event" && message.event.seq > (wanted.begin.from ?? -1)) {
      wanted.begin.from = message.event.seq;
    }
    wanted.listener(message);
  }

  #fallBack(): void {
    if (this.#own) return;
    this.#leave();
    this.#cancelHeartbeat?.();
    const own = this.#host.own();
    this.#own = own;
    own.watch(() => this.#notify());
    for (const [topic, wanted] of this.#wanted) this.#hearOwn(own, topic, wanted);
  }

  #hearOwn(own: LiveConnection, topic: Topic, wanted: Wanted): void {
    const listener = (message: LiveMessage) => this.#receive(message);
    wanted.stop = own.subscribe(topic, listener, runOf(topic) ? wanted.begin : { again: wanted.begin.again });
  }

  #tell(change: Partial<ConnectionStatus>): void {
    this.#status = { ...this.#status, ...change };
    this.#notify();
  }

  #notify(): void {
    for (const watcher of [...this.#watchers]) watcher();
  }
}
