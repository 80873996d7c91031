import { Select as Base } from "@base-ui/react/select";
import type { ReactNode } from "react";
import { classNames } from "@/lib/class-names";
import { Icon } from "./icons";
import { popupContainer } from "./page-portal";

export interface Choice<Value extends string> {
  value: Value;
  label: ReactNode;
  /** A second line that says what the choice means. */
  note?: string;
}

interface SelectProps<Value extends string> {
  /** Its name, where no visible label points to it by `id`. */
  label?: string;
  id?: string;
  value: Value;
  choices: readonly Choice<Value>[];
  onChange: (value: Value) => void;
  compact?: boolean;
  className?: string;
}

/** One of a few choices. Loaded with the pages that use it, never with the entry. */
export function Select<Value extends string>(props: SelectProps<Value>) {
  const { label, id, value, choices, onChange, compact = false, className } = props;
  return (
    <Base.Root items={choices} onValueChange={(next) => next !== null && onChange(next)} value={value}>
      <Base.Trigger
        aria-label={label}
        className={classNames(
          "inline-flex cursor-pointer items-center gap-2 rounded-control border border-line-strong bg-bg pr-2 pl-2.5 text-left hover:bg-hover",
          compact ? "h-7" : "h-8",
          className,
        )}
        id={id}
      >
        <Base.Value className="flex-1 truncate" />
        <Icon className="shrink-0 text-muted" name="down" size={12} />
      </Base.Trigger>
      <Base.Portal container={popupContainer}>
        <Base.Positioner
          align="start"
          alignItemWithTrigger={false}
          className="z-50 outline-none"
          sideOffset={4}
        >
          <Base.Popup className="max-h-[var(--available-height)] min-w-[var(--anchor-width)] overflow-y-auto rounded-panel border border-line-strong bg-bg p-1 outline-none">
            {choices.map((choice) => (
              <Base.Item
                className="grid cursor-pointer grid-cols-[16px_1fr] items-start gap-x-1.5 rounded-control px-1.5 py-1 outline-none data-[highlighted]:bg-accent-soft"
                key={choice.value}
                value={choice.value}
              >
                <Base.ItemIndicator className="col-start-1 row-start-1 flex h-5 items-center text-accent">
                  <Icon name="check" size={12} />
                </Base.ItemIndicator>
                <Base.ItemText className="col-start-2 row-start-1">{choice.label}</Base.ItemText>
                {choice.note && (
                  <span className="col-start-2 max-w-72 text-muted text-xs">{choice.note}</span>
                )}
              </Base.Item>
            ))}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
