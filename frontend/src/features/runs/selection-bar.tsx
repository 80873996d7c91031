import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { isApiError } from "@/api/errors";
import { keys } from "@/api/queries";
import type { BulkAction, Refusal, RunSummary } from "@/api/schema";
import { Button, buttonClass } from "@/components/ui/button";
import { count } from "@/lib/format";
import { notify } from "@/lib/notices";
import { type Chosen, changeRuns } from "./queries";
import type { Selection } from "./use-selection";

const MOST = 10_000;
const NAMED = 1_000;
const COMPARED = 100;

type Action = Partial<BulkAction> & Pick<BulkAction, "kind">;

type Asked = "cancel" | "delete" | "label" | "note";

interface SelectionBarProps {
  selection: Selection;
  /** How many runs match the filter; undefined until that is known. */
  matching: number | undefined;
  /** The filter as one expression. */
  where: string;
  archived: boolean;
  /** The rows that are loaded. */
  rows: readonly RunSummary[];
}

/** What can be done with the chosen runs, and how far it is. */
export function SelectionBar({ selection, matching, where, archived, rows }: SelectionBarProps) {
  const client = useQueryClient();
  const [asking, setAsking] = useState<Asked | null>(null);
  const [progress, setProgress] = useState("");
  const [kept, setKept] = useState<Refusal[]>([]);
  const size = selection.all ? (matching ?? 0) : selection.ids.size;
  const change = useMutation({
    mutationFn: (action: Action) => {
      const chosen: Chosen = selection.all ? { where, archived } : { runs: [...selection.ids] };
      return changeRuns(action, chosen, (now) => setProgress(`${now.done} of ${now.total}`));
    },
    onSuccess: (done) => {
      const { kind } = done.action;
      notify(`${count(done.changed, "run")} of ${done.total} ${kind === "delete" ? "deleted" : "changed"}`);
      setKept(kind === "delete" ? (done.refused ?? []) : []);
      if (kind === "archive" || kind === "delete") selection.clear();
    },
    onSettled: () => {
      setAsking(null);
      setProgress("");
      void client.invalidateQueries({ queryKey: keys.runs });
    },
  });
  if (size === 0) return kept.length > 0 ? <Kept kept={kept} onClose={() => setKept([])} /> : null;
  const tooMany = selection.all ? size > MOST : size > NAMED;
  const off = change.isPending || tooMany;
  const ids = [...selection.ids].slice(0, COMPARED);
  const starred = allStarred(selection, size, rows);
  return (
    <section
      aria-label="Chosen runs"
      className="sticky top-12 z-20 mb-2 flex flex-wrap items-center gap-2 rounded-panel border border-line-strong bg-bg px-3 py-1.5"
    >
      <span className="font-strong tabular-nums">{count(size, "run")} chosen</span>
      {!selection.all && matching !== undefined && matching > size && (
        <Button compact look="quiet" onClick={selection.chooseAll}>
          Choose all {matching.toLocaleString("en")} that match
        </Button>
      )}
      <Button compact look="quiet" onClick={selection.clear}>
        Clear
      </Button>
      {change.isPending && (
        <span aria-live="polite" className="text-muted tabular-nums">
          Changing, {progress || "asked for"}
        </span>
      )}
      {tooMany && (
        <span className="text-warn">
          at most {(selection.all ? MOST : NAMED).toLocaleString("en")} are changed by one request; narrow the
          filter
        </span>
      )}
      {change.error && (
        <span className="text-bad text-xs" role="alert">
          {isApiError(change.error) ? change.error.message : "The runs could not be changed."}
        </span>
      )}
      <div className="ml-auto flex flex-wrap items-center gap-2">
        {asking === null ? (
          <>
            {!selection.all && (
              <a
                aria-disabled={size < 2}
                className={buttonClass("plain", true)}
                href={`/compare?runs=${ids.join(",")}`}
                title={size > COMPARED ? `The first ${COMPARED} of them` : undefined}
              >
                Compare
              </a>
            )}
            <Button compact disabled={off} onClick={() => setAsking("label")}>
              Label
            </Button>
            <Button compact disabled={off} onClick={() => setAsking("note")}>
              Note
            </Button>
            <Button
              compact
              disabled={off}
              onClick={() => change.mutate({ kind: starred ? "unstar" : "star" })}
            >
              {starred ? "Unstar" : "Star"}
            </Button>
            <Button
              compact
              disabled={off}
              onClick={() => change.mutate({ kind: archived ? "unarchive" : "archive" })}
            >
              {archived ? "Show again" : "Archive"}
            </Button>
            <Button compact disabled={off} look="danger" onClick={() => setAsking("cancel")}>
              Cancel
            </Button>
            <Button compact disabled={off} look="danger" onClick={() => setAsking("delete")}>
              Delete
            </Button>
          </>
        ) : (
          <Question
            kind={asking}
            onClose={() => setAsking(null)}
            onDone={(action) => change.mutate(action)}
            pending={change.isPending}
            size={size}
          />
        )}
      </div>
    </section>
  );
}

/** Of runs that are chosen but not loaded nobody knows here: they are not. */
function allStarred({ all, ids }: Selection, size: number, rows: readonly RunSummary[]): boolean {
  const chosen = rows.filter(({ id }) => all || ids.has(id));
  return chosen.length >= size && chosen.every(({ starred }) => starred);
}

interface QuestionProps {
  kind: Asked;
  size: number;
  pending: boolean;
  onDone: (action: Action) => void;
  onClose: () => void;
}

interface Asking {
  word: string;
  leave: string;
  /** What can be written, if anything. */
  field?: { name: string; most: number; hint: string };
}

const QUESTIONS: Record<Asked, Asking> = {
  cancel: { word: "Stop them", leave: "Keep running" },
  delete: {
    word: "Delete them",
    leave: "Keep them",
    field: { name: "Why they are deleted", most: 200, hint: "why (optional)" },
  },
  label: {
    word: "Set label",
    leave: "Leave it",
    field: {
      name: "Label, as name=value; name= takes it away",
      most: 264,
      hint: "name=value, or name= to take it away",
    },
  },
  note: {
    word: "Set note",
    leave: "Leave it",
    field: { name: "Note", most: 2000, hint: "note for each of them" },
  },
};

/** The runs that a deletion kept, each with the reason. */
function Kept({ kept, onClose }: { kept: Refusal[]; onClose: () => void }) {
  return (
    <section
      aria-label="Runs that were kept"
      className="mb-2 flex items-start gap-3 rounded-panel border border-line-strong px-3 py-1.5"
    >
      <ul className="min-w-0 flex-1">
        {kept.map((each) => (
          <li className="break-words" key={each.run}>
            {each.detail} <span className="text-muted">{each.hint}</span>
          </li>
        ))}
      </ul>
      <Button compact look="quiet" onClick={onClose}>
        Close
      </Button>
    </section>
  );
}

function Question({ kind, size, pending, onDone, onClose }: QuestionProps) {
  const [text, setText] = useState("");
  const action = actionOf(kind, text);
  const { word, leave, field } = QUESTIONS[kind];
  return (
    <form
      className="flex flex-wrap items-center gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        if (action) onDone(action);
      }}
    >
      {kind === "cancel" && <span>Stop those of {count(size, "run")} that have not ended?</span>}
      {kind === "delete" && <span>Delete those of {count(size, "run")} that have ended, for good?</span>}
      {field && (
        <input
          aria-label={field.name}
          // biome-ignore lint/a11y/noAutofocus: the button that asks for it was just pressed
          autoFocus
          className="h-7 w-64 rounded-control border border-line-strong bg-bg px-2"
          maxLength={field.most}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => event.key === "Escape" && onClose()}
          placeholder={field.hint}
          value={text}
        />
      )}
      <Button
        autoFocus={kind === "cancel"}
        compact
        disabled={pending || action === null}
        look={kind === "cancel" || kind === "delete" ? "danger" : "primary"}
        type="submit"
      >
        {word}
      </Button>
      <Button compact look="quiet" onClick={onClose}>
        {leave}
      </Button>
    </form>
  );
}

function actionOf(kind: QuestionProps["kind"], text: string): Action | null {
  if (kind === "cancel") return { kind };
  if (kind === "delete") return { kind, why: text };
  if (kind === "note") return { kind, note: text };
  const at = text.indexOf("=");
  return at > 0 ? { kind, labels: { [text.slice(0, at).trim()]: text.slice(at + 1) || null } } : null;
}
