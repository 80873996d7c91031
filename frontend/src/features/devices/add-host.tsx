import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, body } from "@/api/client";
import { isApiError } from "@/api/errors";
import { sessionQuery } from "@/api/queries";
import type { Host } from "@/api/schema";
import { Button } from "@/components/ui/button";
import { CopyButton } from "@/components/ui/copy-button";
import { Dialog } from "@/components/ui/dialog";
import { count } from "@/lib/format";
import { enrolCommand, findNewHost } from "./new-host";

const VALID_S = 3_600;

/**
 * Gives the one command that makes a machine a host, and shows when that has happened. The button stands wherever the
 * page wants it; the dialog stays where it is when the first host comes and the page changes around the button.
 */
export function useAddHost(hosts: readonly Host[]): { button: ReactNode; dialog: ReactNode } {
  const { data: session } = useQuery(sessionQuery);
  const [known, setKnown] = useState<readonly string[]>();
  const token = useMutation({
    mutationFn: () =>
      body(
        api.POST("/api/v1/tokens", {
          body: { name: "a new host", kind: "enr", role: "viewer", expires_in_s: VALID_S },
        }),
      ),
  });
  const open = () => {
    setKnown(hosts.map((host) => `${host.id} ${host.registered_at}`));
    token.mutate();
  };
  if (session?.role !== "admin") return { button: null, dialog: null }; // whom the server lets make tokens
  return {
    button: (
      <Button compact onClick={open}>
        Add a host
      </Button>
    ),
    dialog: (
      <Dialog onClose={() => setKnown(undefined)} open={known !== undefined} title="Add a host">
        <div className="space-y-4 p-4">
          {token.error ? (
            <p className="text-bad" role="alert">
              {isApiError(token.error) ? token.error.message : "The token could not be made."}
            </p>
          ) : (
            <Command secret={token.data?.secret} />
          )}
          {token.data && <Arrival found={findNewHost(hosts, known ?? [])} />}
        </div>
      </Dialog>
    ),
  };
}

function Command({ secret }: { secret: string | undefined }) {
  const command = secret && enrolCommand(window.location.origin, secret);
  return (
    <>
      <p>
        On the machine, with <code>drumline[worker]</code> installed in its Python:
      </p>
      <div
        aria-busy={!command}
        className="flex items-start gap-2 rounded-control border border-line bg-raised p-3"
      >
        <code className="min-w-0 flex-1 break-all" data-testid="enrol-command">
          {command ?? "…"}
        </code>
        {command && <CopyButton bare label="Copy the command" text={command} />}
      </div>
      <p className="text-muted">
        Its token enrols one host and is valid for an hour. The worker keeps running in that shell: let
        systemd or a container start it for good, without the token, which it needs once.
      </p>
    </>
  );
}

function Arrival({ found }: { found: Host | undefined }) {
  return (
    <p className="flex items-center gap-2" role="status">
      {found ? (
        <>
          <span aria-hidden="true" className="size-2 rounded-full bg-ok" />
          <span>
            {found.name} is here, with {count(found.devices, "device")}.
          </span>
        </>
      ) : (
        <>
          <span aria-hidden="true" className="size-2 animate-pulse rounded-full bg-muted" />
          <span className="text-muted">Waiting for it to register.</span>
        </>
      )}
    </p>
  );
}
