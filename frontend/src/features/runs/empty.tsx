import { Link } from "@tanstack/react-router";
import { EmptyState } from "@/components/ui/view-states";

const FIRST_RUN = `from drumline import Client

run = Client().submit("digits.py", replicas=8)
run.wait()`;

export function NoRuns({ filtered }: { filtered: boolean }) {
  if (filtered) {
    return (
      <EmptyState title="No run matches this filter.">
        <Link className="link" search={{}} to="/runs">
          Show all runs
        </Link>
      </EmptyState>
    );
  }
  return (
    <EmptyState snippet={FIRST_RUN} title="Nothing has run here yet.">
      Submit a program from Python, or{" "}
      <Link className="link" to="/submit">
        from the browser
      </Link>
      .
    </EmptyState>
  );
}
