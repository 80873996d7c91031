import type { ReactNode } from "react";

interface SegmentedProps<Value extends string> {
  label: string;
  value: Value;
  choices: readonly { value: Value; label: ReactNode; disabled?: boolean; title?: string }[];
  onChange: (value: Value) => void;
}

/** One of a few short choices, all visible. */
export function Segmented<Value extends string>({ label, value, choices, onChange }: SegmentedProps<Value>) {
  return (
    <fieldset className="flex items-center gap-2">
      <legend className="float-left pr-2 text-muted text-xs">{label}</legend>
      <div className="flex rounded-control border border-line-strong">
        {choices.map((choice) => (
          <button
            aria-pressed={choice.value === value}
            className="h-6.5 border-line border-l px-2.5 text-xs first:border-l-0 hover:bg-hover disabled:cursor-not-allowed disabled:text-muted disabled:hover:bg-transparent aria-pressed:bg-accent-soft aria-pressed:text-accent"
            disabled={choice.disabled}
            key={choice.value}
            onClick={() => onChange(choice.value)}
            title={choice.title}
            type="button"
          >
            {choice.label}
          </button>
        ))}
      </div>
    </fieldset>
  );
}
