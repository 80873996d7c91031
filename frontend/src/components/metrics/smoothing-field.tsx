import { useEffect, useState } from "react";

const SETTLE_MS = 120;

/** How much curves are smoothed: 0 is off. The address follows once the hand rests. */
export function SmoothingField({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  const [shown, show] = useState(value);
  useEffect(() => show(value), [value]);
  useEffect(() => {
    if (shown === value) return;
    const timer = window.setTimeout(() => onChange(shown), SETTLE_MS);
    return () => window.clearTimeout(timer);
  }, [shown, value, onChange]);
  return (
    <label
      className="flex items-center gap-2"
      title="Exponential moving average over the drawn points; 0.9 keeps nine tenths of what was before"
    >
      <span className="text-muted text-xs">Smoothing</span>
      <input
        aria-valuetext={shown === 0 ? "off" : String(shown)}
        className="h-6 w-24 accent-(--accent)"
        max="0.99"
        min="0"
        onChange={(event) => show(Number(event.target.value))}
        step="0.01"
        type="range"
        value={shown}
      />
      <span className="w-8 text-xs">{shown === 0 ? "off" : shown.toFixed(2)}</span>
    </label>
  );
}
