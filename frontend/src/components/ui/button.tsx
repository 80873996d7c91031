import type { ComponentProps } from "react";
import { classNames } from "@/lib/class-names";

const LOOKS = {
  primary:
    "border-accent bg-accent px-3 text-on-accent hover:brightness-110 disabled:border-line disabled:bg-surface disabled:text-muted",
  plain: "border-line bg-bg px-3 hover:border-line-strong hover:bg-hover disabled:text-muted",
  quiet: "border-transparent px-2 text-muted hover:bg-hover hover:text-text disabled:text-muted",
  danger: "border-line bg-bg px-3 text-bad hover:border-bad disabled:text-muted",
};

interface ButtonProps extends ComponentProps<"button"> {
  look?: keyof typeof LOOKS;
  /** 28 px high instead of 32. */
  compact?: boolean;
}

const BUTTON_CLASS =
  "inline-flex shrink-0 select-none items-center justify-center gap-1.5 whitespace-nowrap rounded-control border font-normal text-sm";

export function buttonClass(look: keyof typeof LOOKS = "plain", compact = false): string {
  return classNames(BUTTON_CLASS, LOOKS[look], compact ? "h-7" : "h-8");
}

export function Button({ look, compact, className, type = "button", ...rest }: ButtonProps) {
  return <button className={classNames(buttonClass(look, compact), className)} type={type} {...rest} />;
}

/** A square button that shows only an icon; `label` is its name. */
export function IconButton({ label, className, ...rest }: ComponentProps<"button"> & { label: string }) {
  return (
    <button
      aria-label={label}
      className={classNames(
        "inline-flex size-7 shrink-0 items-center justify-center rounded-control text-muted hover:bg-hover hover:text-text",
        className,
      )}
      title={label}
      type="button"
      {...rest}
    />
  );
}
