import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { isApiError } from "@/api/errors";
import { keys } from "@/api/queries";
import type { RunPatch } from "@/api/schema";
import { Button, IconButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icons";
import { LineText } from "@/components/ui/line-text";
import { classNames } from "@/lib/class-names";
import { patchRun, type SteadyRun } from "../queries";

const MOST_CHARACTERS = 2_000;

type Marked = Pick<SteadyRun, "id" | "note" | "starred">;

function useMark(run: Marked, onDone?: () => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (change: RunPatch) => patchRun(run.id, change),
    onSuccess: (answer) => {
      client.setQueryData(keys.run(run.id), answer);
      void client.invalidateQueries({ queryKey: keys.runs });
      onDone?.();
    },
  });
}

/** Starred runs are kept, and found by their star. */
export function Star({ run }: { run: Marked }) {
  const mark = useMark(run);
  return (
    <>
      <IconButton
        aria-pressed={run.starred}
        className={classNames("self-center", run.starred && "text-warn hover:text-warn")}
        disabled={mark.isPending}
        label={run.starred ? "Unstar" : "Star"}
        onClick={() => mark.mutate({ starred: !run.starred })}
      >
        <Icon name="star" size={14} />
      </IconButton>
      <Refused error={mark.error} />
    </>
  );
}

/** What people wrote of the run, as they wrote it; a long one scrolls. */
export function Note({ run }: { run: Marked }) {
  const [editing, setEditing] = useState(false);
  if (editing) return <EditNote onClose={() => setEditing(false)} run={run} />;
  // A phone has one screen of header, and is for looking: what is offered of no note takes none of it.
  if (run.note === "")
    return (
      <Button className="-my-1 max-sm:hidden" compact look="quiet" onClick={() => setEditing(true)}>
        Add a note
      </Button>
    );
  return (
    <div className="flex max-w-3xl basis-full flex-wrap items-start gap-x-3">
      <div
        className="max-h-30 min-w-0 overflow-y-auto wrap-anywhere border-line-strong border-l-2 pl-3"
        data-testid="run-note"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
        tabIndex={0}
      >
        {run.note.split("\n").map((line, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the lines of one text stay as they are
          <div className="min-h-5" key={at}>
            <LineText text={line} />
          </div>
        ))}
      </div>
      <Button className="-my-1" compact look="quiet" onClick={() => setEditing(true)}>
        Edit the note
      </Button>
    </div>
  );
}

function EditNote({ run, onClose }: { run: Marked; onClose: () => void }) {
  const [text, setText] = useState(run.note);
  const mark = useMark(run, onClose);
  const over = [...text].length - MOST_CHARACTERS;
  return (
    <form
      aria-label="Note of this run"
      className="flex max-w-3xl basis-full flex-wrap items-end gap-2"
      onKeyDown={(event) => event.key === "Escape" && onClose()}
      onSubmit={(event) => {
        event.preventDefault();
        mark.mutate({ note: text });
      }}
    >
      <textarea
        aria-invalid={over > 0}
        aria-label="Note"
        // biome-ignore lint/a11y/noAutofocus: the button that asks for it was just pressed
        autoFocus
        className="min-w-0 flex-1 basis-80 rounded-control border border-line-strong bg-bg px-2 py-1 aria-invalid:border-bad"
        onChange={(event) => setText(event.target.value)}
        rows={rowsOf(text)}
        value={text}
      />
      <Button compact disabled={mark.isPending || over > 0} look="primary" type="submit">
        Save
      </Button>
      <Button compact look="quiet" onClick={onClose}>
        Leave it
      </Button>
      {over > 0 && (
        <span className="w-full text-bad text-xs" role="alert">
          A note has at most {MOST_CHARACTERS.toLocaleString("en")} characters: this one has{" "}
          {over.toLocaleString("en")} too many.
        </span>
      )}
      <Refused error={mark.error} />
    </form>
  );
}

/** As many as a short note needs; a long one scrolls. */
function rowsOf(text: string): number {
  const rows = text.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / 80)), 0);
  return Math.min(8, Math.max(3, rows));
}

function Refused({ error }: { error: unknown }) {
  if (!error) return null;
  return (
    <span className="font-normal text-bad text-xs" role="alert">
      {isApiError(error) ? error.message : "The run could not be changed."}
    </span>
  );
}
