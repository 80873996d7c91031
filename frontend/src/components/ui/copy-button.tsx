import { useEffect, useState } from "react";
import { Button, IconButton } from "./button";
import { Icon } from "./icons";

/** Copies `text`; says so in place for two seconds, to a screen reader as well. */
export function CopyButton({
  text,
  label,
  bare = false,
}: {
  text: string | (() => string);
  label: string;
  bare?: boolean;
}) {
  const [outcome, setOutcome] = useState<"copied" | "failed" | null>(null);
  useEffect(() => {
    if (!outcome) return;
    const timer = window.setTimeout(() => setOutcome(null), 2_000);
    return () => window.clearTimeout(timer);
  }, [outcome]);
  const copy = async () => {
    setOutcome((await copyText(typeof text === "function" ? text() : text)) ? "copied" : "failed");
  };
  const icon = <Icon name={outcome === "copied" ? "check" : "copy"} size={14} />;
  const said = outcome === "copied" ? "Copied" : outcome === "failed" ? "Copying failed" : "";
  return (
    <>
      {bare ? (
        <IconButton label={said || label} onClick={copy}>
          {icon}
        </IconButton>
      ) : (
        <Button compact look="quiet" onClick={copy}>
          {icon}
          {said || label}
        </Button>
      )}
      <span aria-live="polite" className="sr-only">
        {said}
      </span>
    </>
  );
}

/** Writes to the clipboard; on plain http of another host, where the API is missing, by a selection. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "fixed top-0 opacity-0";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
