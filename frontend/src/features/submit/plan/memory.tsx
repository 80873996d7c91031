import type { PlacedDevice, PlannedMemory, ProbedProgram } from "@/api/schema";
import { Section } from "@/components/ui/section";
import { formatBytes } from "@/lib/format";
import { placeText } from "./place";

const PARTS = [
  { name: "arguments", color: "var(--seq-4)" },
  { name: "new outputs", color: "var(--seq-3)" },
  { name: "temporary", color: "var(--seq-2)" },
  { name: "code", color: "var(--line-strong)" },
] as const;

/** What each compiled step needs on one device, drawn to one scale: the device's memory where that is known. */
export function Memory({ program, devices }: { program: ProbedProgram; devices: readonly PlacedDevice[] }) {
  const { memory } = program;
  const known = devices.map((device) => device.memory_bytes).filter((bytes) => bytes !== null);
  const capacity = known.length > 0 ? Math.min(...known) : null;
  const scale = Math.max(capacity ?? 0, ...memory.map(({ peak }) => peak), 1);
  return (
    <Section
      note={capacity ? `of ${formatBytes(capacity)} on each device` : undefined}
      title="Memory per device"
    >
      {memory.length === 0 ? (
        <p className="pt-3 text-muted">
          Known only for steps that are one compiled program; here each replica has programs of its own.
        </p>
      ) : (
        <>
          <table aria-label="Memory per device" className="mt-2 w-full">
            <tbody>
              {memory.map((one) => (
                <tr className="h-8" key={placeText(one)}>
                  <th className="w-0 whitespace-nowrap pr-4 text-left font-normal text-muted" scope="row">
                    step {placeText(one)}
                  </th>
                  <td>
                    <Bar memory={one} scale={scale} />
                  </td>
                  <td className="w-0 whitespace-nowrap pl-4 text-right">{formatBytes(one.peak)} peak</td>
                </tr>
              ))}
            </tbody>
          </table>
          <Legend />
        </>
      )}
    </Section>
  );
}

function Bar({ memory, scale }: { memory: PlannedMemory; scale: number }) {
  const sizes = [memory.argument, Math.max(0, memory.output - memory.alias), memory.temp, memory.code];
  let x = 0;
  return (
    <svg className="block h-3.5 w-full" preserveAspectRatio="none" role="img" viewBox="0 0 1000 14">
      <title>{PARTS.map(({ name }, i) => `${name} ${formatBytes(sizes[i])}`).join(", ")}</title>
      <rect fill="var(--line)" height="14" width="1000" />
      {sizes.map((size, i) => {
        const from = x;
        x += (size / scale) * 1000;
        return <rect fill={PARTS[i]?.color} height="14" key={PARTS[i]?.name} width={x - from} x={from} />;
      })}
    </svg>
  );
}

function Legend() {
  return (
    <ul className="mt-1 flex flex-wrap gap-x-4 text-muted text-xs">
      {PARTS.map(({ name, color }) => (
        <li className="flex items-center gap-1.5" key={name}>
          <span aria-hidden="true" className="size-2.5" style={{ background: color }} />
          {name}
        </li>
      ))}
    </ul>
  );
}
