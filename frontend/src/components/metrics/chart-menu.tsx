import { Menu } from "@base-ui/react/menu";
import { useState } from "react";
import type { Line } from "@/components/charts/drawing";
import { csvOfChart, fileName, type Pictured, pageColors, svgOfChart } from "@/components/charts/export";
import { savePng, saveText } from "@/components/charts/save";
import { Icon } from "@/components/ui/icons";
import { popupContainer } from "@/components/ui/page-portal";
import { notify } from "@/lib/notices";
import { LimitsDialog } from "./limits-dialog";
import type { Limits } from "./view";

/** What a person can do with one chart; what is left out is not offered. */
export interface ChartActions {
  pinned?: boolean | undefined;
  onPin?: (() => void) | undefined;
  onOverlay?: (() => void) | undefined;
  wide: boolean;
  onWide: () => void;
  log: boolean;
  onLog: () => void;
  limits: Limits;
  onLimits: (limits: Limits) => void;
}

interface ChartMenuProps extends ChartActions {
  title: string;
  picture: () => Pictured;
  /** The lines with all that is known of them, where a picture has less. */
  wholeLines?: (() => Promise<readonly Line[]>) | undefined;
}

const SIZE = [960, 420] as const;

/** One menu for all charts of a page: one for each takes as long to make as the chart. */
const menu = Menu.createHandle<ChartMenuProps>();

/** The button of a chart's menu; the page has the menu itself. */
export function ChartMenu(chart: ChartMenuProps) {
  return (
    <Menu.Trigger
      aria-label={`Chart of ${chart.title}`}
      className="-mr-1.5 inline-flex size-6 shrink-0 cursor-pointer items-center justify-center rounded-control text-muted hover:bg-hover hover:text-text"
      handle={menu}
      payload={chart}
    >
      <Icon name="more" size={14} />
    </Menu.Trigger>
  );
}

/** The menu of all charts of a page. */
export function ChartMenus() {
  const [asking, setAsking] = useState<ChartMenuProps | null>(null);
  return (
    <>
      <Menu.Root handle={menu} modal={false}>
        {({ payload: chart }) => (
          <Menu.Portal container={popupContainer}>
            <Menu.Positioner align="end" className="z-50 outline-none" sideOffset={4}>
              <Menu.Popup className="min-w-48 rounded-panel border border-line-strong bg-bg p-1 outline-none">
                {chart && <Items {...chart} onLimitsAsked={() => setAsking(chart)} />}
              </Menu.Popup>
            </Menu.Positioner>
          </Menu.Portal>
        )}
      </Menu.Root>
      {asking && (
        <LimitsDialog
          limits={asking.limits}
          onChoose={asking.onLimits}
          onClose={() => setAsking(null)}
          title={asking.title}
        />
      )}
    </>
  );
}

function Items({
  title,
  picture,
  wholeLines,
  onLimitsAsked,
  ...actions
}: ChartMenuProps & { onLimitsAsked: () => void }) {
  const { limits } = actions;
  const limited = limits.low !== undefined || limits.high !== undefined;
  const svg = () => svgOfChart(picture(), ...SIZE, pageColors());
  const name = fileName(title);
  const saveCsv = async () => {
    const lines = await wholeLines?.();
    saveText(`${name}.csv`, "text/csv", csvOfChart({ ...picture(), ...(lines && { lines }) }));
  };
  return (
    <>
      {actions.onPin && <Item on={actions.onPin}>{actions.pinned ? "Unpin" : "Pin to the top"}</Item>}
      {actions.onOverlay && <Item on={actions.onOverlay}>Overlay with…</Item>}
      <Item on={actions.onWide}>{actions.wide ? "Usual size" : "Enlarge"}</Item>
      <Item on={actions.onLog}>{actions.log ? "Linear scale" : "Log scale"}</Item>
      <Item on={onLimitsAsked}>{limited ? "Limits of y (set)…" : "Limits of y…"}</Item>
      <Menu.Separator className="my-1 h-px bg-line" />
      <Item on={() => void savePng(`${name}.png`, svg()).catch(tell)}>Save as PNG</Item>
      <Item on={() => saveText(`${name}.svg`, "image/svg+xml", svg())}>Save as SVG</Item>
      <Item on={() => void saveCsv().catch(tell)}>Save as CSV</Item>
    </>
  );
}

const tell = (error: Error) => notify(error.message);

function Item({ on, children }: { on: () => void; children: string }) {
  return (
    <Menu.Item
      className="cursor-pointer rounded-control px-2 py-1 outline-none data-[highlighted]:bg-accent-soft"
      onClick={on}
    >
      {children}
    </Menu.Item>
  );
}
