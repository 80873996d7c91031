import { useState } from "react";
import { buttonClass } from "@/components/ui/button";
import { classNames } from "@/lib/class-names";
import { formatUtc } from "@/lib/format";
import { fromLocalTime, toLocalTime } from "./local-time";

interface TimeFieldsProps {
  since: string | undefined;
  until: string | undefined;
  onChange: (change: { since?: string | undefined; until?: string | undefined }) => void;
}

/** From when and until when lines are looked for: shown once they are wanted, as most look for a text. */
export function TimeFields({ since, until, onChange }: TimeFieldsProps) {
  const [isOpen, setOpen] = useState(false);
  const isSet = since !== undefined || until !== undefined;
  const toggle = () => {
    setOpen(!(isOpen || isSet));
    if (isSet) onChange({ since: undefined, until: undefined });
  };
  return (
    <>
      <button
        aria-pressed={isOpen || isSet}
        className={classNames(
          buttonClass("plain", true),
          "aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent",
        )}
        onClick={toggle}
        title={isSet ? "Look at lines of any time" : "Look at lines of some time only"}
        type="button"
      >
        Time
      </button>
      {(isOpen || isSet) && (
        <>
          <TimeField label="Written from" onChange={(next) => onChange({ since: next })} value={since} />
          <span className="text-muted text-xs">to</span>
          <TimeField label="Written until" onChange={(next) => onChange({ until: next })} value={until} />
        </>
      )}
    </>
  );
}

interface TimeFieldProps {
  label: string;
  value: string | undefined;
  onChange: (next: string | undefined) => void;
}

function TimeField({ label, value, onChange }: TimeFieldProps) {
  return (
    <input
      aria-label={`${label}, in your local time`}
      className="h-7 rounded-control border border-line-strong bg-bg px-2 text-xs"
      onChange={(event) => onChange(fromLocalTime(event.target.value))}
      step={1}
      title={value ? formatUtc(value) : `${label}, in your local time`}
      type="datetime-local"
      value={value ? toLocalTime(value) : ""}
    />
  );
}
