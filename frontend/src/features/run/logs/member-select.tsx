import type { Attempt } from "@/api/schema";
import { Select } from "@/components/ui/select";
import { stateWord } from "@/components/ui/state-badge";

interface MemberSelectProps {
  attempts: readonly Attempt[];
  member: string | undefined;
  onChoose: (choice: { attempt: string | undefined; member: string | undefined }) => void;
}

/** Whose output is shown; nothing where there is only one process. */
export function MemberSelect({ attempts, member, onChoose }: MemberSelectProps) {
  const members = attempts.flatMap((attempt) => attempt.members.map((each) => ({ attempt, member: each })));
  const first = members[0];
  if (members.length < 2 || !first) return null;
  const choices = members.map(({ attempt, member: each }) => ({
    value: each.id,
    label: `Attempt ${attempt.number}, ${each.host_name}`,
    note: `rank ${each.rank}, ${stateWord(each.state).toLowerCase()}`,
  }));
  return (
    <Select
      choices={choices}
      compact
      label="Process"
      onChange={(id) => {
        const chosen = members.find((each) => each.member.id === id);
        onChoose({ attempt: chosen?.attempt.id, member: chosen?.member.id });
      }}
      value={member ?? first.member.id}
    />
  );
}
