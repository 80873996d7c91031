import { useInfiniteQuery } from "@tanstack/react-query";
import type { JobChange } from "@/api/schema";
import { Age } from "@/components/runs/run-columns";
import { Button } from "@/components/ui/button";
import { PrincipalName } from "@/components/ui/principal-name";
import { Section } from "@/components/ui/section";
import { ErrorState, SkeletonRows } from "@/components/ui/view-states";
import { changesQuery } from "./queries";

/** Which version was current when, and who made it so; newest first. */
export function ChangeHistory({ name }: { name: string }) {
  const changes = useInfiniteQuery(changesQuery(name));
  const rows = changes.data?.pages.flatMap((page) => page.items);
  return (
    <Section title="History">
      {changes.error && !rows && <ErrorState error={changes.error} what="The history could not be loaded" />}
      {!rows && !changes.error && <SkeletonRows label="the history" rows={3} />}
      <ol>
        {rows?.map((change) => (
          <li className="border-line border-b py-1.5 text-xs leading-4" key={change.number}>
            <span className="flex gap-2">
              <span>{sentence(change)}</span>
              <span className="ml-auto whitespace-nowrap text-muted">
                <Age moment={change.at} />
              </span>
            </span>
            <span className="block truncate text-muted">
              by <PrincipalName who={{ id: change.principal?.id ?? null, name: change.by }} />
            </span>
          </li>
        ))}
      </ol>
      {changes.hasNextPage && (
        <Button className="mt-2" compact onClick={() => void changes.fetchNextPage()}>
          Earlier
        </Button>
      )}
    </Section>
  );
}

function sentence({ cause, from_version: from, to_version: to }: JobChange): string {
  if (cause === "submit")
    return from === null ? `v${to} submitted first` : `v${to} submitted, after v${from}`;
  return from !== null && to < from ? `rolled back from v${from} to v${to}` : `v${to} made current again`;
}
