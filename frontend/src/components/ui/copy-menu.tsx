import { Menu } from "@base-ui/react/menu";
import { classNames } from "@/lib/class-names";
import { notify } from "@/lib/notices";
import { buttonClass } from "./button";
import { copyText } from "./copy-button";
import { Icon } from "./icons";
import { popupContainer } from "./page-portal";

export interface Copyable {
  name: string;
  /** null: there is no such form, as `note` says. */
  text: string | null;
  note: string;
}

/** The same thing in several languages, each a press away from the clipboard. */
export function CopyMenu({ label, choices }: { label: string; choices: readonly Copyable[] }) {
  return (
    <Menu.Root modal={false}>
      <Menu.Trigger className={classNames(buttonClass("plain", true), "cursor-pointer pr-2")}>
        {label}
        <Icon className="text-muted" name="down" size={12} />
      </Menu.Trigger>
      <Menu.Portal container={popupContainer}>
        <Menu.Positioner align="end" className="z-50 outline-none" sideOffset={4}>
          <Menu.Popup className="min-w-44 rounded-panel border border-line-strong bg-bg p-1 outline-none">
            {choices.map(({ name, text, note }) => (
              <Menu.Item
                className="flex cursor-pointer items-baseline justify-between gap-6 rounded-control px-2 py-1 outline-none data-[disabled]:cursor-not-allowed data-[disabled]:text-muted data-[highlighted]:bg-accent-soft"
                disabled={text === null}
                key={name}
                onClick={() => text !== null && void copy(name, text)}
              >
                {name}
                <span className="text-muted text-xs">{note}</span>
              </Menu.Item>
            ))}
          </Menu.Popup>
        </Menu.Positioner>
      </Menu.Portal>
    </Menu.Root>
  );
}

async function copy(name: string, text: string): Promise<void> {
  notify((await copyText(text)) ? `${name} copied` : `${name} could not be copied`);
}
