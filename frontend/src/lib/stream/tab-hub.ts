/**
 * Lets all tabs of a browser share one connection: browsers allow six per server on plain HTTP. A tab says again and again which
 * topics it wants, and where it stands in each; so a tab that was forgotten, or a hub that was lost, loses no event.
 */
import type { Begin, ConnectionStatus, LiveConnection, LiveMessage, Topic } from "./messages";

export type ToTabHub =
  /** All that the tab wants from now on. Answered by a status. */
  | { kind: "want"; topics: Readonly<Partial<Record<Topic, Begin>>> }
  /** Who is signed in has changed. */
  | { kind: "restart" };

export type FromTabHub =
  | { kind: "message"; message: LiveMessage }
  | { kind: "status"; status: ConnectionStatus };

/** The part of a MessagePort that is used. */
export interface Port<Out, In> {
  postMessage(message: Out): void;
  onmessage: ((message: MessageEvent<In>) => void) | null;
}

type TabPort = Port<FromTabHub, ToTabHub>;

/** How often a tab says what it wants. */
export const HEARTBEAT_MS = 5_000;
/** A tab that says nothing for so long has crashed, or sleeps. */
export const FORGET_MS = 90_000;

export class TabHub {
  readonly #connection: LiveConnection;
  readonly #after: (ms: number, run: () => void) => () => void;
  readonly #tabs = new Set<TabPort>();

  constructor(connection: LiveConnection, after: (ms: number, run: () => void) => () => void) {
    this.#connection = connection;
    this.#after = after;
    connection.watch(() => {
      for (const tab of this.#tabs) this.#sayStatus(tab);
    });
  }

  join(tab: TabPort): void {
    const heard = new Map<Topic, () => void>();
    let cancel = () => {};
    const want = (topics: Readonly<Partial<Record<Topic, Begin>>>) => {
      cancel();
      this.#reconcile(tab, heard, topics);
      if (heard.size === 0) {
        this.#tabs.delete(tab);
        return;
      }
      this.#tabs.add(tab);
      cancel = this.#after(FORGET_MS, () => want({}));
    };
    tab.onmessage = ({ data }) => {
      if (data.kind === "restart") this.#connection.restart();
      else {
        want(data.topics);
        this.#sayStatus(tab);
      }
    };
  }

  #reconcile(
    tab: TabPort,
    heard: Map<Topic, () => void>,
    topics: Readonly<Partial<Record<Topic, Begin>>>,
  ): void {
    for (const [topic, begin] of Object.entries(topics) as [Topic, Begin][]) {
      if (heard.has(topic)) continue;
      const tell = (message: LiveMessage) => tab.postMessage({ kind: "message", message });
      heard.set(topic, this.#connection.subscribe(topic, tell, begin));
    }
    for (const [topic, stop] of heard) {
      if (topic in topics) continue;
      stop();
      heard.delete(topic);
    }
  }

  #sayStatus(tab: TabPort): void {
    tab.postMessage({ kind: "status", status: this.#connection.status() });
  }
}
