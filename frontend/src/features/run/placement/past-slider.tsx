interface Props {
  /** What it goes over, as "Steps". */
  label: string;
  /** Places of the slider less one: the last is now, and moves with the run. */
  last: number;
  /** None is now. */
  at: number | undefined;
  /** What is shown at that place. */
  text: string;
  onChange: (at: number | undefined) => void;
}

/** Takes a picture back to how it was earlier. */
export function PastSlider({ label, last, at, text, onChange }: Props) {
  return (
    <label className="flex flex-wrap items-center gap-3 pt-3 pb-1 text-muted text-xs">
      {label}
      <input
        aria-valuetext={text}
        className="w-64 max-w-full accent-accent"
        max={last}
        min={0}
        onChange={({ target }) => {
          const place = Number(target.value);
          onChange(place === last ? undefined : place);
        }}
        type="range"
        value={at ?? last}
      />
      <output className="tabular-nums">{text}</output>
    </label>
  );
}
