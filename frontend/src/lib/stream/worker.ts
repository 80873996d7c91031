/** The shared worker that holds the one live connection of a browser. */
import { browserHost, Connection, STREAM_URL } from "./connection";
import { TabHub } from "./tab-hub";

const host = browserHost();
const hub = new TabHub(new Connection(STREAM_URL, host), host.after);
const scope = globalThis as unknown as { onconnect: (event: MessageEvent) => void };
scope.onconnect = ({ ports }) => {
  for (const port of ports) hub.join(port);
};
