const isMac = () => /Mac|iPhone|iPad/.test(navigator.userAgent);

/** A shortcut as it is printed on keys. */
export function Keys({ keys }: { keys: string }) {
  const parts = keys === " " ? ["space"] : keys.replace("mod+", isMac() ? "⌘ " : "Ctrl ").split(" ");
  return (
    <span className="inline-flex gap-1">
      {parts.map((part) => (
        <kbd className="rounded-control border border-line px-1 text-2xs text-muted" key={part}>
          {part.length === 1 && parts[0] === "Ctrl" ? part.toUpperCase() : part}
        </kbd>
      ))}
    </span>
  );
}
