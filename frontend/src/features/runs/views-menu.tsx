import { Menu } from "@base-ui/react/menu";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { isApiError } from "@/api/errors";
import type { RunListView } from "@/api/schema";
import { Button, buttonClass, IconButton } from "@/components/ui/button";
import { Dialog } from "@/components/ui/dialog";
import { Icon } from "@/components/ui/icons";
import { popupContainer } from "@/components/ui/page-portal";
import { classNames } from "@/lib/class-names";
import { formatUtc } from "@/lib/format";
import { deleteView, saveView, viewsQuery } from "./queries";
import { viewNameFlaw } from "./view-name";

interface ViewsMenuProps {
  /** What is shown now. */
  current: RunListView;
  onOpen: (view: RunListView) => void;
}

/** Saved views of the project: opened, saved under a name, and managed. */
export function ViewsMenu({ current, onOpen }: ViewsMenuProps) {
  const views = useQuery(viewsQuery);
  const [managing, setManaging] = useState(false);
  const items = views.data?.items ?? [];
  return (
    <>
      <Menu.Root modal={false}>
        <Menu.Trigger className={classNames(buttonClass("plain", true), "cursor-pointer pr-2")}>
          Views
          <Icon className="text-muted" name="down" size={12} />
        </Menu.Trigger>
        <Menu.Portal container={popupContainer}>
          <Menu.Positioner align="end" className="z-50 outline-none" sideOffset={4}>
            <Menu.Popup className="max-h-96 min-w-52 overflow-y-auto rounded-panel border border-line-strong bg-bg p-1 outline-none">
              {items.map(({ name, view, made_by: maker }) => (
                <Menu.Item
                  className="flex cursor-pointer items-baseline justify-between gap-6 rounded-control px-2 py-1 outline-none data-[highlighted]:bg-accent-soft"
                  key={name}
                  onClick={() => onOpen(view)}
                >
                  <span className="max-w-64 truncate">{name}</span>
                  <span className="max-w-32 truncate text-muted text-xs">{maker.name}</span>
                </Menu.Item>
              ))}
              <Menu.Item
                className="cursor-pointer rounded-control border-line px-2 py-1 outline-none data-[highlighted]:bg-accent-soft"
                onClick={() => setManaging(true)}
              >
                {items.length === 0 ? "Save this view" : "Save or delete"}
              </Menu.Item>
            </Menu.Popup>
          </Menu.Positioner>
        </Menu.Portal>
      </Menu.Root>
      <Dialog onClose={() => setManaging(false)} open={managing} title="Saved views">
        <Manage current={current} />
      </Dialog>
    </>
  );
}

function Manage({ current }: { current: RunListView }) {
  const client = useQueryClient();
  const views = useQuery(viewsQuery);
  const [name, setName] = useState("");
  const flawId = useId();
  const typed = name !== "";
  const refresh = () => client.invalidateQueries({ queryKey: viewsQuery.queryKey });
  const save = useMutation({
    mutationFn: () => saveView(name.trim(), current),
    onSuccess: () => {
      setName("");
      return refresh();
    },
  });
  const remove = useMutation({ mutationFn: deleteView, onSuccess: refresh });
  const error = save.error ?? remove.error;
  const items = views.data?.items ?? [];
  const flaw = viewNameFlaw(name);
  const replaces = items.some((view) => view.name === name.trim());
  return (
    <div className="px-4 py-3">
      <form
        className="flex gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          if (flaw === null) save.mutate();
        }}
      >
        <input
          aria-describedby={typed && flaw ? flawId : undefined}
          aria-invalid={typed && flaw !== null}
          aria-label="Name of the view"
          className="h-8 min-w-0 flex-1 rounded-control border border-line-strong bg-bg px-2.5 aria-invalid:border-bad"
          onChange={(event) => setName(event.target.value)}
          placeholder="Name for what is shown now"
          value={name}
        />
        <Button disabled={flaw !== null || save.isPending} look="primary" type="submit">
          {replaces ? "Replace" : "Save"}
        </Button>
      </form>
      {typed && flaw && (
        <p className="mt-2 text-bad text-xs" id={flawId} role="alert">
          {flaw}
        </p>
      )}
      {error && (
        <p className="mt-2 text-bad text-xs" role="alert">
          {isApiError(error) ? error.message : "The view could not be saved."}
        </p>
      )}
      <ul aria-label="Saved views" className="mt-3">
        {items.map((view) => (
          <li className="flex h-8 items-center gap-3 border-line border-b" key={view.name}>
            <span className="min-w-0 flex-1 truncate">{view.name}</span>
            <span className="truncate text-muted text-xs">
              {view.made_by.name}, {formatUtc(view.created_at)}
            </span>
            <IconButton label={`Delete ${view.name}`} onClick={() => remove.mutate(view.name)}>
              <Icon name="close" size={12} />
            </IconButton>
          </li>
        ))}
      </ul>
    </div>
  );
}
