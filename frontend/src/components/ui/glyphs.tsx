import type { ReactNode } from "react";

interface GlyphProps {
  /** Side in px. */
  size?: number;
  className?: string;
}

function Glyph({ size = 16, className, children }: GlyphProps & { children: ReactNode }) {
  return (
    <svg
      aria-hidden="true"
      className={className}
      fill="none"
      height={size}
      stroke="currentColor"
      strokeLinecap="round"
      strokeLinejoin="round"
      strokeWidth={1.3}
      viewBox="0 0 16 16"
      width={size}
    >
      {children}
    </svg>
  );
}

/** Drumline's mark: four devices, two of them joined to one replica. */
export function BrandGlyph({ size = 20, className }: GlyphProps) {
  return (
    <Glyph className={className} size={size}>
      <rect fill="var(--accent)" height="5.5" rx="1" stroke="var(--accent)" width="13" x="1.5" y="1.5" />
      <rect height="5.5" rx="1" width="5.5" x="1.5" y="9" />
      <rect height="5.5" rx="1" width="5.5" x="9" y="9" />
    </Glyph>
  );
}

/** Central storage: one cylinder that holds the variables. */
function Cylinder(props: GlyphProps) {
  return (
    <Glyph {...props}>
      <ellipse cx="8" cy="4" rx="5" ry="2" />
      <path d="M3 4v8c0 1.1 2.24 2 5 2s5-.9 5-2V4" />
      <path d="M3 8c0 1.1 2.24 2 5 2s5-.9 5-2" />
    </Glyph>
  );
}

/** Mirrored: stacked sheets, the same copy on each device. */
function Sheets(props: GlyphProps) {
  return (
    <Glyph {...props}>
      <rect height="7.5" rx="1" width="7.5" x="2" y="6.5" />
      <path d="M4.5 4.3h6.2a1 1 0 0 1 1 1v6.2" />
      <path d="M7 2h6a1 1 0 0 1 1 1v6" />
    </Glyph>
  );
}

/** TPU: a torus of linked chips. */
function Torus(props: GlyphProps) {
  return (
    <Glyph {...props}>
      <ellipse cx="8" cy="8" rx="6.2" ry="4.6" />
      <path d="M5 7.3c.8 1.4 1.9 2 3 2s2.2-.6 3-2" />
      <path d="M5.8 8.3c.6-.8 1.4-1.2 2.2-1.2s1.6.4 2.2 1.2" />
    </Glyph>
  );
}

/** One device. */
function Dot(props: GlyphProps) {
  return (
    <Glyph {...props}>
      <circle cx="8" cy="8" fill="currentColor" r="2.6" />
    </Glyph>
  );
}

const STRATEGIES: Record<string, { name: string; Shape: (props: GlyphProps) => ReactNode }> = {
  mirrored: { name: "Mirrored", Shape: Sheets },
  central_storage: { name: "Central storage", Shape: Cylinder },
  tpu: { name: "TPU", Shape: Torus },
  one_device: { name: "One device", Shape: Dot },
};

/** What the engine calls itself in a placement. */
const KIND_OF_CLASS: Record<string, string> = {
  MirroredStrategy: "mirrored",
  CentralStorageStrategy: "central_storage",
  TPUStrategy: "tpu",
  OneDeviceStrategy: "one_device",
};

function strategyOf(kind: string) {
  return STRATEGIES[KIND_OF_CLASS[kind] ?? kind];
}

export function strategyName(kind: string): string {
  return strategyOf(kind)?.name ?? kind;
}

/** The strategy's drawing and, unless `bare`, its name. */
export function StrategyMark({ kind, bare = false }: { kind: string; bare?: boolean }) {
  const Shape = strategyOf(kind)?.Shape ?? Dot;
  return (
    <span className="inline-flex h-5 items-center gap-1.5 whitespace-nowrap align-top">
      <Shape className="shrink-0 text-muted" />
      {bare ? <span className="sr-only">{strategyName(kind)}</span> : strategyName(kind)}
    </span>
  );
}
