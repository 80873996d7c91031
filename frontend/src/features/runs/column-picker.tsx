import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Button, IconButton } from "@/components/ui/button";
import { Dialog } from "@/components/ui/dialog";
import { Icon } from "@/components/ui/icons";
import { fieldsQuery } from "./queries";

const MOST = 30;

interface ColumnPickerProps {
  chosen: readonly string[];
  onChange: (columns: readonly string[]) => void;
}

/** Columns chosen among parameters, metrics, results, labels and the run's own. */
export function ColumnPicker({ chosen, onChange }: ColumnPickerProps) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button compact onClick={() => setOpen(true)}>
        Columns{chosen.length > 0 && <span className="text-muted tabular-nums">{chosen.length}</span>}
      </Button>
      <Dialog onClose={() => setOpen(false)} open={open} title="Columns">
        <Picker chosen={chosen} onChange={onChange} />
      </Dialog>
    </>
  );
}

function Picker({ chosen, onChange }: ColumnPickerProps) {
  const [typed, setTyped] = useState("");
  const names = useQuery(fieldsQuery(typed, 100));
  const others = (names.data?.items ?? []).filter(({ name }) => !chosen.includes(name));
  const move = (place: number, by: number) => {
    const next = [...chosen];
    const [taken] = next.splice(place, 1);
    if (taken !== undefined) next.splice(place + by, 0, taken);
    onChange(next);
  };
  return (
    <div className="px-4 py-3">
      {chosen.length === 0 ? (
        <p className="mb-3 text-muted">
          The usual columns are shown. Choose a field to show it in their place.
        </p>
      ) : (
        <ol className="mb-3" aria-label="Chosen columns">
          {chosen.map((name, place) => (
            <li className="flex h-8 items-center border-line border-b" key={name}>
              <code className="flex-1 truncate">{name}</code>
              <IconButton disabled={place === 0} label={`Move ${name} up`} onClick={() => move(place, -1)}>
                <Icon className="rotate-180" name="down" size={12} />
              </IconButton>
              <IconButton
                disabled={place === chosen.length - 1}
                label={`Move ${name} down`}
                onClick={() => move(place, 1)}
              >
                <Icon name="down" size={12} />
              </IconButton>
              <IconButton
                label={`Remove ${name}`}
                onClick={() => onChange(chosen.filter((other) => other !== name))}
              >
                <Icon name="close" size={12} />
              </IconButton>
            </li>
          ))}
        </ol>
      )}
      <input
        aria-label="Find a field"
        className="mb-2 h-8 w-full rounded-control border border-line-strong bg-bg px-2.5"
        maxLength={240}
        onChange={(event) => setTyped(event.target.value)}
        onKeyDown={(event) => {
          const first = others[0];
          if (event.key === "Enter" && first && chosen.length < MOST) onChange([...chosen, first.name]);
        }}
        placeholder="Find a field: lr, loss, owner, labels"
        spellCheck={false}
        value={typed}
      />
      <ul aria-label="Fields" className="max-h-64 overflow-y-auto">
        {others.map(({ name, kind }) => (
          <li key={name}>
            <button
              className="flex h-8 w-full items-center justify-between gap-4 rounded-control px-2 text-left hover:bg-hover disabled:text-muted"
              disabled={chosen.length >= MOST}
              onClick={() => onChange([...chosen, name])}
              type="button"
            >
              <code className="truncate">{name}</code>
              <span className="text-muted text-xs">{kind}</span>
            </button>
          </li>
        ))}
      </ul>
      <div className="mt-2 flex items-center justify-between text-muted text-xs">
        <span>
          {names.data?.more ? "More fields match; type to narrow" : `${others.length} to choose from`}
          {chosen.length >= MOST && `; at most ${MOST} are shown`}
        </span>
        {chosen.length > 0 && (
          <Button compact look="quiet" onClick={() => onChange([])}>
            Usual columns
          </Button>
        )}
      </div>
    </div>
  );
}
