import type { ReactNode } from "react";

const SHAPES = {
  overview: <path d="M2 13h12M3.5 10.500v-4M8 10.500v-8M12.5 10.500V5" />,
  runs: <path d="M2 4h12M2 8h12M2 12h8" />,
  devices: (
    <path d="M2.5 2.500h4.500v4.500H2.500zM9 2.500h4.500v4.500H9zM2.5 9h4.500v4.500H2.500zM9 9h4.500v4.500H9z" />
  ),
  jobs: <path d="M3 5.500 8 3l5 2.500L8 8zM3 8.300 8 10.800l5-2.500M3 11 8 13.500l5-2.500" />,
  batches: <path d="M3 13V3M8 13V3M13 13V3M3 10.500 8 5l5 4" />,
  usage: <path d="M8 2.500A5.500 5.500 0 1 0 13.500 8H8zM10.500 2v3.500H14A4 4 0 0 0 10.500 2z" />,
  submit: <path d="M8 13V3M4 7l4-4 4 4" />,
  alerts: <path d="M4 11.500V7a4 4 0 0 1 8 0v4.500l1 1H3zM6.500 12.500a1.500 1.500 0 0 0 3 0" />,
  search: <path d="M7 11.500a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3 14 14" />,
  close: <path d="m4 4 8 8M12 4l-8 8" />,
  copy: <path d="M6 6h7.500v7.500H6zM10 6V2.500H2.500V10H6" />,
  check: <path d="m3 8.5 3.3 3.300L13 4.8" />,
  light: (
    <path d="M8 10.800a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.600zM8 1.500V3M8 13v1.500M1.5 8H3M13 8h1.500M3.4 3.400l1 1M11.6 11.600l1 1M12.6 3.400l-1 1M4.4 11.600l-1 1" />
  ),
  dark: <path d="M13.3 9.600A5.7 5.7 0 0 1 6.4 2.700a5.7 5.7 0 1 0 6.9 6.900z" />,
  system: <path d="M2 3h12v8H2zM6 13.500h4" />,
  pause: <path d="M5.5 3.500v9M10.5 3.500v9" />,
  play: <path d="m5 3.2 7.5 4.800L5 12.800z" />,
  keyboard: <path d="M1.5 4h13v8h-13zM4 6.500h.01M6.7 6.500h.01M9.3 6.500h.01M12 6.500h.01M5 9.500h6" />,
  right: <path d="m6 3.5 4.5 4.500L6 12.5" />,
  down: <path d="m3.5 6 4.5 4.500L12.5 6" />,
  more: <path d="M3.500 8h.01M8 8h.01M12.500 8h.01" strokeWidth="2" />,
  upload: <path d="M8 10.500V2.500M4.8 5.5 8 2.300l3.2 3.200M2.5 10.500v3h11v-3" />,
  warning: <path d="M8 2.3 14.3 13.300H1.700zM8 6.500v3M8 11.500h.01" />,
  star: <path d="m8 2.2 1.8 3.700 4 .6-2.900 2.800.7 4L8 11.400l-3.600 1.900.7-4L2.2 6.500l4-.6z" />,
  link: (
    <path d="M6.5 9.5 9.5 6.500M7 4.500l1.3-1.300a3.2 3.2 0 0 1 4.5 4.500L11.5 9M9 11.500l-1.3 1.300a3.2 3.2 0 0 1-4.5-4.500L4.5 7" />
  ),
} satisfies Record<string, ReactNode>;

export type IconName = keyof typeof SHAPES;

/** A 16 px line icon; decorative, so the control around it carries the name. */
export function Icon({ name, size = 16, className }: { name: IconName; size?: number; className?: string }) {
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
      {SHAPES[name]}
    </svg>
  );
}
