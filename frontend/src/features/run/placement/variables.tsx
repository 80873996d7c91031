import { useState } from "react";
import type { PlacedVariable, Placement } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { ScrollBox } from "@/components/ui/scroll-box";
import { Section } from "@/components/ui/section";
import { count, formatBytes, formatInteger } from "@/lib/format";
import { shapeText } from "../reductions/arithmetic";
import { deviceName } from "./paint";

const PAGE = 50;
const HEADS = ["Name", "Shape", "Type", "Synchronization", "Aggregation", "Copies", "One copy", "All copies"];

/** Every variable with each place that holds a copy of it. */
export function Variables({ placement }: { placement: Placement }) {
  const [shown, setShown] = useState(PAGE);
  const { variables } = placement;
  const bytes = variables.reduce((sum, variable) => sum + variable.size_bytes * variable.homes.length, 0);
  const note =
    variables.length > 0
      ? `${count(variables.length, "variable")}, ${formatBytes(bytes)} in all copies`
      : undefined;
  return (
    <Section note={note} title="Variables">
      {variables.length === 0 ? (
        <p className="py-3 text-muted">The program has made no variable under the strategy’s scope.</p>
      ) : (
        <ScrollBox>
          <table className="w-full whitespace-nowrap" data-testid="placed-variables">
            <caption className="sr-only">Variables and the devices that hold them</caption>
            <thead>
              <tr className="border-line border-b text-left text-muted text-xs">
                {HEADS.map((head, i) => (
                  <th
                    className={i >= 6 ? "h-7 pr-6 text-right font-normal last:pr-0" : "h-7 pr-6 font-normal"}
                    key={head}
                    scope="col"
                  >
                    {head}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {variables.slice(0, shown).map((variable) => (
                <Row key={variable.name} placement={placement} variable={variable} />
              ))}
            </tbody>
          </table>
          {shown < variables.length && (
            <Button className="mt-3" compact onClick={() => setShown(shown + PAGE)}>
              Show more of {formatInteger(variables.length)} variables
            </Button>
          )}
        </ScrollBox>
      )}
    </Section>
  );
}

function Row({ variable, placement }: { variable: PlacedVariable; placement: Placement }) {
  return (
    <tr className="h-8 border-line border-b">
      <td className="max-w-72 truncate pr-6 font-mono text-xs" title={variable.name}>
        {variable.name}
      </td>
      <td className="pr-6 font-mono text-xs">{shapeText(variable.shape)}</td>
      <td className="pr-6 font-mono text-xs">{variable.dtype}</td>
      <td className="pr-6">{words(variable.synchronization)}</td>
      <td className="pr-6">{words(variable.aggregation)}</td>
      <td className="pr-6">{homesText(variable.homes, placement)}</td>
      <td className="pr-6 text-right">{formatBytes(variable.size_bytes)}</td>
      <td className="text-right">{formatBytes(variable.size_bytes * variable.homes.length)}</td>
    </tr>
  );
}

function homesText(homes: readonly string[], placement: Placement): string {
  const devices = placement.devices.filter((device) => homes.includes(device.device));
  const computing = placement.devices.filter((device) => device.replica !== null).length;
  if (homes.length === 1 && homes[0] === "host") return "host memory";
  if (homes.length === 1 && devices[0]) return `${deviceName(devices[0])} on ${devices[0].host_name}`;
  return devices.length === computing
    ? `×${computing}, every device`
    : `×${homes.length}, of ${computing} devices`;
}

/** `on_read` as people write it. */
function words(name: string): string {
  return name.toLowerCase().replaceAll("_", " ");
}
