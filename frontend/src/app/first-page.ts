/**
 * Before the first rendering: the page's code, and the answers that were asked for while the code was on its way. They are
 * there by then, or nearly so; a page that is rendered without them is rendered twice, and its numbers wait for that.
 */
import { forgetAhead } from "@/api/ahead";
import { wentAhead } from "./ahead";

/** What comes later than this finds a page that waits for it, as after any other press of a link. */
const PATIENCE_MS = 250;

export async function firstPage(router: { load: () => Promise<void> }): Promise<void> {
  const patience = new Promise<void>((over) => window.setTimeout(over, PATIENCE_MS));
  // The router shows what it could not load, once it is rendered.
  const loaded = router
    .load()
    .then(wentAhead, () => undefined)
    .then(forgetAhead);
  await Promise.race([loaded, patience]);
}
