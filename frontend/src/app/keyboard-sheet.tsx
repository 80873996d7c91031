import { Dialog } from "@/components/ui/dialog";
import { Keys } from "@/components/ui/keys";
import { type Shortcut, useShortcuts } from "@/lib/shortcuts";

const GROUPS: readonly Shortcut["group"][] = ["Go to", "List", "Run", "View"];

/** What every key does on this page. */
export default function KeyboardSheet({ onClose }: { onClose: () => void }) {
  return (
    <Dialog onClose={onClose} open title="Keyboard">
      <Groups />
    </Dialog>
  );
}

function Groups() {
  const unique = new Map(useShortcuts().map((shortcut) => [shortcut.keys, shortcut]));
  return (
    <div className="grid gap-x-8 gap-y-4 p-4 sm:grid-cols-2">
      {GROUPS.map((group) => {
        const lines = [...unique.values()].filter((shortcut) => shortcut.group === group);
        if (lines.length === 0) return null;
        return (
          <section key={group}>
            <h3 className="mb-1 text-muted text-xs">{group}</h3>
            <dl>
              {lines.map(({ keys, meaning }) => (
                <div className="flex items-baseline justify-between gap-4 py-0.5" key={keys}>
                  <dt>{meaning}</dt>
                  <dd>
                    <Keys keys={keys} />
                  </dd>
                </div>
              ))}
            </dl>
          </section>
        );
      })}
    </div>
  );
}
