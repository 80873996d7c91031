/**
 * Lets all tabs of a browser share one connection: browsers allow six per server on plain HTTP. A tab says again and again which
 * topics it wants, and where it stands in each; so a tab that was forgotten, or an exchange that was lost, loses no event.
 */
import type { Begin, Line, LineStatus, LiveMessage, Topic } from "./messages";

export type ToExchange =
  /** All that the tab wants from now on. Answered by a status. */
  | { kind: "want"; topics: Readonly<Partial<Record<Topic, Begin>>> }
  /** Who is signed in has changed. */
  | { kind: "restart" };

export type FromExchange = { kind: "message"; message: LiveMessage } | { kind: "status"; status: LineStatus };

/** The part of a MessagePort that is used. */
export interface Port<Out, In> {
  postMessage(message: Out): void;
  onmessage: ((message: MessageEvent<In>) => void) | null;
}

type TabPort = Port<FromExchange, ToExchange>;

/** How often a tab says what it wants. */
export const BEAT_MS = 5_000;
/** A tab that says nothing for so long has crashed, or sleeps. */
export const FORGET_MS = 90_000;

export class Exchange {
  readonly #line: Line;
  readonly #after: (ms: number, run: () => void) => () => void;
  readonly #tabs = new Set<TabPort>();

  constructor(line: Line, after: (ms: number, run: () => void) => () => void) {
    this.#line = line;
    this.#after = after;
    line.watch(() => {
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
      if (data.kind === "restart") this.#line.restart();
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
      heard.set(topic, this.#line.subscribe(topic, tell, begin));
    }
    for (const [topic, stop] of heard) {
      if (topic in topics) continue;
      stop();
      heard.delete(topic);
    }
  }

  #sayStatus(tab: TabPort): void {
    tab.postMessage({ kind: "status", status: this.#line.status() });
  }
}
