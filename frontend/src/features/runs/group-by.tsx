import { useQuery } from "@tanstack/react-query";
import { Select } from "@/components/ui/select";
import { fieldsQuery } from "./queries";

const USUAL = ["job", "owner", "state", "reason", "batch", "strategy", "platform"];

/** The field by which runs are grouped: one of the run's own, a label or a parameter. */
export function GroupBy({ value, onChange }: { value: string; onChange: (by: string) => void }) {
  const labels = useQuery(fieldsQuery("labels.", 20));
  const parameters = useQuery(fieldsQuery("params.", 40));
  const found = [...(labels.data?.items ?? []), ...(parameters.data?.items ?? [])].map(({ name }) => name);
  const names = [...new Set([...USUAL, ...found, ...(value ? [value] : [])])];
  const choices = [
    { value: "", label: "No groups" },
    ...names.map((name) => ({ value: name, label: `By ${name}` })),
  ];
  return <Select choices={choices} compact label="Group" onChange={onChange} value={value} />;
}
