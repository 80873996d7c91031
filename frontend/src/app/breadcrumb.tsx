import { useQuery } from "@tanstack/react-query";
import { Link, useLocation } from "@tanstack/react-router";
import { useEffect } from "react";
import { runQuery } from "@/api/queries";
import { stateWord } from "@/components/ui/state-badge";
import { shortId } from "@/lib/format";
import { PLACES } from "./navigation";

/** Where we are: the place, and the thing in it. */
export function Breadcrumb() {
  const path = useLocation({ select: ({ pathname }) => pathname });
  const [, first = "", second] = path.split("/");
  const isCompare = first === "compare";
  const place = PLACES.find(({ to }) => to === (isCompare ? "/runs" : `/${first}`));
  const thing = second && (first === "jobs" ? decodeURIComponent(second) : shortId(second));
  const leaf = isCompare ? "Compare" : thing && <code title={second}>{thing}</code>;
  const of = useRunTitle(first === "runs" ? second : undefined) ?? thing;
  const title = [of ?? (isCompare && "Compare"), place?.label, "Drumline"].filter(Boolean).join(" · ");
  useEffect(() => {
    document.title = title;
  }, [title]);
  if (!place) return <div className="flex-1" />;
  return (
    <nav aria-label="Breadcrumb" className="min-w-0 flex-1">
      <ol className="flex items-center gap-2">
        <li className={leaf ? "text-muted" : ""}>
          {leaf ? <Link to={place.to}>{place.label}</Link> : place.label}
        </li>
        {leaf && (
          <>
            <li aria-hidden="true" className="text-muted">
              /
            </li>
            <li className="truncate">{leaf}</li>
          </>
        )}
      </ol>
    </nav>
  );
}

/** `digits running`: tells the tabs of a browser apart, and that one of them is done. Asks for nothing itself. */
function useRunTitle(id: string | undefined): string | undefined {
  const { data: run } = useQuery({ ...runQuery(id ?? ""), enabled: false });
  return id && run ? `${run.job} ${stateWord(run.state).toLowerCase()}` : undefined;
}
