import type { ReactNode } from "react";
import { NOT_REPORTED } from "@/lib/format";

export type Fact = [name: string, value: ReactNode];

/** Names and values in two aligned columns. A value of null is "not reported". */
export function Facts({ facts }: { facts: readonly Fact[] }) {
  return (
    <dl className="grid grid-cols-[minmax(96px,auto)_1fr] gap-x-4 gap-y-0.5">
      {facts.map(([name, value]) => (
        <div className="contents" key={name}>
          <dt className="text-muted leading-6">{name}</dt>
          <dd className="min-w-0 break-words leading-6">
            {value === null || value === undefined || value === "" ? (
              <span className="text-muted">{NOT_REPORTED}</span>
            ) : (
              value
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}
