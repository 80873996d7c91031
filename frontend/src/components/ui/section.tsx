import { type ReactNode, useId } from "react";
import { classNames } from "@/lib/class-names";

interface SectionProps {
  title: string;
  /** A short fact after the title. */
  note?: ReactNode;
  /** Controls at the right end of the heading's line. */
  aside?: ReactNode;
  className?: string;
  children: ReactNode;
}

/** A part of a page: a heading that sits on a hairline, and what belongs under it. */
export function Section({ title, note, aside, className, children }: SectionProps) {
  const id = useId();
  return (
    <section aria-labelledby={id} className={classNames("min-w-0", className)}>
      <div className="section-rule">
        <h2 id={id}>{title}</h2>
        {note && <span className="min-w-0 truncate text-muted">{note}</span>}
        {aside && <div className="ml-auto flex items-center gap-2 self-center">{aside}</div>}
      </div>
      {children}
    </section>
  );
}
