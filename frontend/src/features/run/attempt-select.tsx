import { useQuery } from "@tanstack/react-query";
import { Select } from "@/components/ui/select";
import { stateWord } from "@/components/ui/state-badge";
import { attemptsQuery } from "./queries";

const WHOLE = "";

interface AttemptSelectProps {
  runId: string;
  attempt: string | undefined;
  onChoose: (attempt: string | undefined) => void;
  className?: string;
}

/** Whose records are shown: the run's, without what was rolled back, or one attempt's; nothing where there is only one. */
export function AttemptSelect({ runId, attempt, onChoose, className }: AttemptSelectProps) {
  const attempts = useQuery(attemptsQuery(runId)).data ?? [];
  if (attempts.length < 2) return null;
  const choices = [
    { value: WHOLE, label: "Whole run", note: "without what was rolled back" },
    ...attempts.map(({ id, number, state, resumed_step }) => ({
      value: id,
      label: `Attempt ${number}`,
      note: `${stateWord(state).toLowerCase()}, ${resumed_step == null ? "from the start" : `after step ${resumed_step}`}`,
    })),
  ];
  return (
    <div className={className}>
      <Select
        choices={choices}
        compact
        label="Attempt"
        onChange={(id) => onChoose(id === WHOLE ? undefined : id)}
        value={attempt ?? WHOLE}
      />
    </div>
  );
}
