import { useState } from "react";
import { Button } from "@/components/ui/button";
import { CopyButton, copyText } from "@/components/ui/copy-button";
import { plainText } from "@/lib/ansi";
import { formatInteger } from "@/lib/format";
import type { LogLoader } from "./loader";
import type { LineRange } from "./range";

/** More lines than this belong into the raw download. */
const MOST_COPIED = 5_000;

/** What can be done with the selected lines. */
export function SelectionBar({
  range,
  loader,
  onClear,
}: {
  range: LineRange;
  loader: LogLoader;
  onClear: () => void;
}) {
  const [outcome, setOutcome] = useState("");
  const many = range.to - range.from + 1;
  const copy = async () => {
    await loader.load(range.from, range.to);
    const lines = Array.from({ length: many }, (_, i) =>
      plainText(loader.buffer.line(range.from + i)?.text ?? ""),
    );
    setOutcome((await copyText(lines.join("\n"))) ? "Copied" : "Copying failed");
  };
  return (
    <div className="flex flex-wrap items-center gap-2 pt-2 text-xs" data-testid="log-selection">
      <span>
        {many === 1
          ? `Line ${formatInteger(range.from)}`
          : `Lines ${formatInteger(range.from)} to ${formatInteger(range.to)}`}
      </span>
      <Button compact disabled={many > MOST_COPIED} look="quiet" onClick={() => void copy()}>
        {many > MOST_COPIED ? `Up to ${formatInteger(MOST_COPIED)} lines can be copied` : "Copy lines"}
      </Button>
      <CopyButton label="Copy link" text={() => window.location.href} />
      <Button compact look="quiet" onClick={onClear}>
        Clear
      </Button>
      <span aria-live="polite" className="text-muted">
        {outcome}
      </span>
      <span className="text-muted">Shift and a click on a number stretch the range.</span>
    </div>
  );
}
