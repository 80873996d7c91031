import { type ReactElement, type ReactNode, useId } from "react";
import { classNames } from "@/lib/class-names";

interface ControlProps {
  id: string;
  "aria-invalid"?: true;
  "aria-describedby"?: string;
}

interface FieldProps {
  label: string;
  /** Said under the control, also to a screen reader. */
  hint?: ReactNode;
  error?: string | undefined;
  required?: boolean;
  /** Stands at the right end of the label's line: a type, a unit. */
  kind?: string;
  className?: string;
  children: (control: ControlProps) => ReactElement;
}

/** A labelled control with its hint and its error. */
export function Field({ label, hint, error, required, kind, className, children }: FieldProps) {
  const id = useId();
  const note = error ?? hint;
  return (
    <div className={classNames("min-w-0", className)}>
      <label className="mb-1 flex items-baseline justify-between gap-2" htmlFor={id}>
        <span className="truncate">
          {label}
          {required && <span className="text-muted"> (required)</span>}
        </span>
        {kind && <span className="text-muted text-xs">{kind}</span>}
      </label>
      {children({
        id,
        ...(error ? { "aria-invalid": true as const } : {}),
        ...(note ? { "aria-describedby": `${id}-note` } : {}),
      })}
      {note && (
        <p
          className={classNames("mt-1 break-words text-xs", error ? "text-bad" : "text-muted")}
          id={`${id}-note`}
        >
          {note}
        </p>
      )}
    </div>
  );
}

export const INPUT_CLASS =
  "h-8 w-full min-w-0 rounded-control border border-line-strong bg-bg px-2.5 aria-invalid:border-bad disabled:border-line disabled:text-muted";
