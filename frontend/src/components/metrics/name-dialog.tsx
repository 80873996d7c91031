import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Dialog } from "@/components/ui/dialog";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { titleOf } from "./series";

interface FoundNames {
  names: readonly string[];
  error: unknown;
  pending: boolean;
  /** Fetches further ones; undefined where there are none. */
  more: (() => void) | undefined;
}

interface NameDialogProps {
  title: string;
  names: readonly string[];
  least: number;
  most: number;
  /** What the button says of so many names. */
  action: (count: number) => string;
  /** Names that hold a text, as the server finds them. */
  found: FoundNames;
  search: string;
  onSearch: (text: string) => void;
  onChoose: (names: string[]) => void;
  onClose: () => void;
}

/** Chooses some of many metrics. */
export function NameDialog(props: NameDialogProps) {
  const { title, names, least, most, action, found, search, onSearch, onChoose, onClose } = props;
  const [chosen, setChosen] = useState<readonly string[]>(names);
  const others = found.names.filter((name) => !chosen.includes(name));
  const toggle = (name: string) =>
    setChosen(chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name]);
  return (
    <Dialog onClose={onClose} open title={title}>
      <div className="flex flex-col gap-3 p-4">
        <input
          aria-label="Find a metric"
          className="h-8 rounded-control border border-line-strong bg-bg px-2"
          maxLength={200}
          onChange={(event) => onSearch(event.target.value)}
          placeholder="Find a metric"
          value={search}
        />
        <div className="max-h-[40vh] overflow-y-auto">
          {[...chosen, ...others].map((name) => (
            <label className="flex min-h-7 items-center gap-2" key={name}>
              <input
                checked={chosen.includes(name)}
                disabled={!chosen.includes(name) && chosen.length >= most}
                onChange={() => toggle(name)}
                type="checkbox"
              />
              <span className="min-w-0 truncate">{titleOf(name)}</span>
            </label>
          ))}
          {found.error ? <ErrorState error={found.error} what="The names could not be loaded" /> : null}
          {found.pending && <SkeletonRows label="the names" rows={3} />}
          {found.more && (
            <Button compact onClick={found.more}>
              More names
            </Button>
          )}
        </div>
        <Button
          className="self-start"
          disabled={chosen.length < least}
          look="primary"
          onClick={() => {
            onChoose([...chosen]);
            onClose();
          }}
        >
          {action(chosen.length)}
        </Button>
      </div>
    </Dialog>
  );
}
