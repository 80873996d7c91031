import { useQuery } from "@tanstack/react-query";
import type { Gap } from "@/api/schema";
import { Icon } from "@/components/ui/icons";
import { gapSentence } from "./gaps";
import { gapsQuery } from "./queries";

interface GapNoteProps {
  runId: string;
  what: Gap["what"];
}

/** Says what is missing from a view; nothing where it is whole. */
export function GapNote({ runId, what }: GapNoteProps) {
  const { data: lost } = useQuery(gapsQuery(runId));
  const sentence = lost && gapSentence(lost, what);
  if (!sentence) return null;
  return (
    <p className="mb-4 flex items-center gap-2 text-warn text-xs" data-testid="gap-note" role="status">
      <Icon name="warning" size={12} />
      {sentence} What is shown is not all that the program sent.
    </p>
  );
}
