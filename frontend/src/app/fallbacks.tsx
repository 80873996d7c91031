import type { ErrorComponentProps } from "@tanstack/react-router";
import { Link } from "@tanstack/react-router";
import { ErrorState } from "@/components/ui/view-states";

/** A page whose own code failed: the rest of the dashboard stays in use. */
export function PageError({ error, reset }: ErrorComponentProps) {
  return (
    <div className="p-6">
      <ErrorState error={error} onRetry={reset} what="This page could not be shown" />
    </div>
  );
}

export function NotFound() {
  return (
    <div className="p-6">
      <h1 className="text-lg">There is no such page</h1>
      <p className="mt-1 text-muted">Its address was cut short, or is of another project.</p>
      <p className="mt-4">
        <Link className="link" to="/">
          Overview
        </Link>
      </p>
    </div>
  );
}
