import type { ReactNode } from "react";
import { type ApiError, isApiError } from "@/api/errors";
import { classNames } from "@/lib/class-names";
import { formatAge } from "@/lib/format";
import { useNow } from "@/lib/now";
import { Button } from "./button";
import { CopyButton } from "./copy-button";
import { Icon } from "./icons";

/** A grey bar in the place of a value that is on its way; appears after 150 ms, so that a fast answer never flashes. */
export function Skeleton({ className }: { className?: string }) {
  return (
    <span
      aria-hidden="true"
      className={classNames("skeleton-late block h-3 rounded-control bg-line", className)}
    />
  );
}

/** Rows in the place of a list. */
export function SkeletonRows({ rows = 6, label }: { rows?: number; label: string }) {
  return (
    <div aria-busy="true" role="status">
      <span className="sr-only">Loading {label}</span>
      {Array.from({ length: rows }, (_, row) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the rows are all alike and never move
        <div className="flex h-8 items-center gap-6 border-line border-b" key={row}>
          <Skeleton className="w-24" />
          <Skeleton className="w-40" />
          <Skeleton className="ml-auto w-16" />
        </div>
      ))}
    </div>
  );
}

/** Nothing is there: one sentence, and what to do about it, to be copied. */
export function EmptyState({
  title,
  children,
  snippet,
}: {
  title: string;
  children?: ReactNode;
  snippet?: string;
}) {
  return (
    <div className="max-w-2xl py-6">
      <p>{title}</p>
      {children && <div className="mt-1 text-muted">{children}</div>}
      {snippet && <Snippet text={snippet} />}
    </div>
  );
}

/** Code to read and copy. */
function Snippet({ text, label = "Copy" }: { text: string; label?: string }) {
  return (
    <div className="mt-3 flex items-start rounded-panel border border-line bg-surface">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls sideways must be reachable by keyboard */}
      <pre className="min-w-0 flex-1 overflow-x-auto px-3 py-2.5 text-xs leading-5" tabIndex={0}>
        {text}
      </pre>
      <div className="p-1">
        <CopyButton bare label={label} text={text} />
      </div>
    </div>
  );
}

interface ErrorStateProps {
  what: string;
  error: unknown;
  onRetry?: () => void;
  /** Where to go instead. */
  children?: ReactNode;
}

/** An address that names nothing names nothing when it is asked again, too. */
const NAMES_NOTHING = [404, 422];

/** What failed, why, under which request id, and a way to try again where that may help. */
export function ErrorState({ what, error, onRetry, children }: ErrorStateProps) {
  const problem: ApiError | null = isApiError(error) ? error : null;
  const mayPass = !problem || !NAMES_NOTHING.includes(problem.status);
  return (
    <div className="max-w-2xl border-bad border-l-2 py-1 pl-4" role="alert">
      <p className="font-strong">{what}</p>
      <p className="mt-1 break-words">
        {problem?.message ?? (error instanceof Error ? error.message : String(error))}
      </p>
      {problem?.hint && <p className="mt-1 text-muted">{problem.hint}</p>}
      <div className="mt-3 flex items-center gap-3">
        {onRetry && mayPass && (
          <Button compact onClick={onRetry}>
            Try again
          </Button>
        )}
        {children}
        {problem?.requestId && <code className="text-muted">request {problem.requestId}</code>}
      </div>
    </div>
  );
}

/** Shown above values that could not be renewed: they stay, with their age. */
export function StaleBanner({ since, error }: { since: number; error: unknown }) {
  const now = useNow();
  const why = isApiError(error) ? error.message : "The last refresh failed.";
  return (
    <p className="mb-4 flex items-center gap-2 bg-warn-soft px-3 py-1.5 text-warn" role="status">
      <Icon name="warning" size={14} />
      Last known, {formatAge(new Date(since).toISOString(), now)}. {why}
    </p>
  );
}
