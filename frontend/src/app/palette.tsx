import { type QueryClient, useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Command } from "cmdk";
import { startTransition, useDeferredValue, useEffect, useEffectEvent, useRef, useState } from "react";
import { runsQuery } from "@/api/queries";
import { Age } from "@/components/runs/run-columns";
import { flawOf } from "@/components/runs/run-facts";
import { copyText } from "@/components/ui/copy-button";
import { Dialog } from "@/components/ui/dialog";
import { Icon } from "@/components/ui/icons";
import { StateIcon } from "@/components/ui/state-badge";
import { afterFrame } from "@/lib/after-frame";
import { classNames } from "@/lib/class-names";
import { shortId } from "@/lib/format";
import { notify } from "@/lib/notices";
import { setThemeChoice } from "@/lib/theme";
import { PLACES } from "./navigation";
import { Group, Item } from "./palette-items";
import { Things } from "./palette-things";
import { useSignOut } from "./sign-out";

const ENTER = { key: "Enter", bubbles: true, cancelable: true };

/** Find a run or do something by typing. */
export default function Palette({ onClose }: { onClose: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState("");
  const search = useDeferredValue(text.trim());
  const isReady = useReady();
  const isEntered = useRef(false);
  const enter = () => {
    if (isEntered.current) input.current?.dispatchEvent(new KeyboardEvent("keydown", ENTER));
  };
  return (
    <Dialog
      className="overflow-hidden"
      hideTitle
      initialFocus={input}
      onClose={onClose}
      open
      title="Command palette"
    >
      <Command label="Find or do" loop>
        <div className="flex h-11 items-center gap-2.5 border-line border-b px-3.5">
          <Icon className="text-muted" name="search" />
          <Command.Input
            ref={input}
            className="h-full flex-1 bg-transparent text-md outline-none"
            onKeyDown={(event) => {
              // What is typed at once is meant: it is done as soon as there is something to choose.
              isEntered.current = !isReady && event.key === "Enter";
            }}
            onValueChange={setText}
            placeholder="Find a run, job, sweep, host or command"
            value={text}
          />
        </div>
        <Command.List className={classNames("max-h-[56vh] overflow-y-auto p-1.5", !isReady && "h-[56vh]")}>
          {isReady && <Choices onClose={onClose} onReady={enter} search={search} text={text} />}
        </Command.List>
      </Command>
    </Dialog>
  );
}

/** Takes text first: its choices are rendered once that is on the page, a few milliseconds at a time. */
function useReady(): boolean {
  const [isReady, setReady] = useState(false);
  useEffect(() => afterFrame(() => startTransition(() => setReady(true))), []);
  return isReady;
}

interface ChoicesProps {
  /** What is typed. */
  text: string;
  /** What is looked for by it. */
  search: string;
  onClose: () => void;
  /** Told once, when the choices are there. */
  onReady: () => void;
}

/** Each item has a value: one that text hides as it comes has no text in the document to be found by. */
function Choices({ text, search, onClose, onReady }: ChoicesProps) {
  const tellReady = useEffectEvent(onReady);
  useEffect(() => afterFrame(tellReady), []);
  const client = useQueryClient();
  const runs = useInfiniteQuery({ ...runsFor(search), placeholderData: (old) => old });
  const navigate = useNavigate();
  const signOut = useSignOut();
  const act = (action: () => unknown) => () => {
    onClose();
    void action();
  };
  const compare = async () => {
    const ids = await findRuns(client, search); // before this closes, which would end the question
    if (ids === null) return notify("The runs could not be found; try again");
    onClose();
    await navigate({ to: "/compare", search: { runs: ids || undefined } });
  };
  return (
    <>
      <Command.Empty className="px-2 py-6 text-center text-muted">Nothing matches “{text}”.</Command.Empty>
      <Group heading="Go to">
        {PLACES.map(({ to, label, icon }) => (
          <Item key={to} onSelect={act(() => navigate({ to }))} value={label}>
            <Icon className="text-muted" name={icon} />
            {label}
          </Item>
        ))}
      </Group>
      <Group heading="Runs">
        {runs.data?.pages[0]?.items.map((run) => (
          <Item
            key={run.id}
            keywords={[run.job, run.state, shortId(run.id)]}
            onSelect={act(() => navigate({ to: "/runs/$runId", params: { runId: run.id } }))}
            value={run.id}
          >
            <span className="flex w-4 shrink-0 justify-center">
              <StateIcon flaw={flawOf(run)} state={run.state} />
            </span>
            <span className="truncate">{run.job}</span>
            <span className="text-muted">v{run.version}</span>
            <span className="ml-auto whitespace-nowrap text-muted text-xs">
              <Age moment={run.created_at} />
            </span>
            <code className="text-muted">{shortId(run.id)}</code>
          </Item>
        ))}
      </Group>
      <Things onChoose={act} search={search} />
      <Command.Group forceMount>
        <Item forceMount onSelect={() => void compare()} value="compare runs">
          <Icon className="text-muted" name="batches" />
          {search ? `Compare the runs that match “${search}”` : "Compare the newest runs"}
        </Item>
      </Command.Group>
      <Group heading="Do">
        <Item
          onSelect={act(async () =>
            notify((await copyText(location.href)) ? "Link copied" : "The link could not be copied"),
          )}
          value="Copy a link to this view"
        >
          <Icon className="text-muted" name="link" />
          Copy a link to this view
        </Item>
        {(["light", "dark", "system"] as const).map((choice) => (
          <Item key={choice} onSelect={act(() => setThemeChoice(choice))} value={`Theme: ${choice}`}>
            <Icon className="text-muted" name={choice} />
            Theme: {choice}
          </Item>
        ))}
        <Item onSelect={act(signOut)} value="Sign out">
          <Icon className="text-muted" name="right" />
          Sign out
        </Item>
      </Group>
    </>
  );
}

function runsFor(search: string) {
  return runsQuery({ q: search || undefined }, 8);
}

/** Ids as the address of a comparison has them: those that match, also while the list still shows what matched before. */
async function findRuns(client: QueryClient, search: string): Promise<string | null> {
  try {
    const found = await client.ensureInfiniteQueryData(runsFor(search));
    return found.pages.flatMap(({ items }) => items.map(({ id }) => id)).join(",");
  } catch {
    return null;
  }
}
