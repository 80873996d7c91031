import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Dialog } from "@/components/ui/dialog";
import type { Limits } from "./view";

interface LimitsDialogProps {
  title: string;
  limits: Limits;
  onChoose: (limits: Limits) => void;
  onClose: () => void;
}

/** Both ends of a chart's vertical axis; an empty one follows the values. */
export function LimitsDialog({ title, limits, onChoose, onClose }: LimitsDialogProps) {
  const [low, setLow] = useState(String(limits.low ?? ""));
  const [high, setHigh] = useState(String(limits.high ?? ""));
  const [least, most] = [numberIn(low), numberIn(high)];
  const wrong =
    Number.isNaN(least) || Number.isNaN(most)
      ? "A limit is a number, such as 0.5 or 1e-3."
      : least !== undefined && most !== undefined && least >= most
        ? `The lower limit ${low} must be less than the upper limit ${high}.`
        : null;
  const choose = (next: Limits) => {
    onChoose(next);
    onClose();
  };
  return (
    <Dialog onClose={onClose} open title={`Limits of ${title}`}>
      <form
        className="flex flex-col gap-3 p-4"
        onSubmit={(event) => {
          event.preventDefault();
          if (!wrong) choose({ low: least, high: most });
        }}
      >
        <div className="flex flex-wrap gap-4">
          <Field label="Lowest" onChange={setLow} value={low} />
          <Field label="Highest" onChange={setHigh} value={high} />
        </div>
        {wrong && (
          <p className="text-bad text-xs" role="alert">
            {wrong}
          </p>
        )}
        <div className="flex gap-2">
          <Button compact disabled={wrong !== null} look="primary" type="submit">
            Set
          </Button>
          <Button compact onClick={() => choose({})}>
            Follow the values
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Field({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string;
  onChange: (text: string) => void;
}) {
  return (
    <label className="flex items-center gap-2">
      <span className="text-muted text-xs">{label}</span>
      <input
        className="h-7 w-28 rounded-control border border-line-strong bg-bg px-2"
        inputMode="decimal"
        maxLength={32}
        onChange={(event) => onChange(event.target.value)}
        value={value}
      />
    </label>
  );
}

function numberIn(text: string): number | undefined {
  if (text.trim() === "") return undefined;
  const value = Number(text);
  return Number.isFinite(value) ? value : Number.NaN;
}
