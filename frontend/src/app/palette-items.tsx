import { Command } from "cmdk";
import type { ReactNode } from "react";

export function Group({ heading, children }: { heading: string; children: ReactNode }) {
  return (
    <Command.Group
      className="[&_[cmdk-group-heading]]:px-2 [&_[cmdk-group-heading]]:pt-2 [&_[cmdk-group-heading]]:pb-1 [&_[cmdk-group-heading]]:text-2xs [&_[cmdk-group-heading]]:text-muted"
      heading={heading}
    >
      {children}
    </Command.Group>
  );
}

export function Item({
  children,
  ...rest
}: {
  children: ReactNode;
  onSelect: () => void;
  value: string;
  keywords?: string[];
  /** Shown whatever is typed. */
  forceMount?: boolean;
}) {
  return (
    <Command.Item
      className="flex h-8 cursor-pointer items-center gap-2.5 rounded-control px-2 data-[selected=true]:bg-accent-soft"
      {...rest}
    >
      {children}
    </Command.Item>
  );
}
