import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, body } from "@/api/client";
import { isApiError } from "@/api/errors";
import { keys } from "@/api/queries";
import type { Device, Host } from "@/api/schema";
import { Button } from "@/components/ui/button";

/** What an operator can do with a host now: drain or undrain it, and end its quarantine. */
export function HostActions({ host }: { host: Host }) {
  const params = { params: { path: { host_id: host.id } } };
  return (
    <div className="flex flex-wrap items-start gap-2">
      {host.trouble && (
        <Act
          act={() => body(api.POST("/api/v1/hosts/{host_id}:release", params))}
          label={host.trouble.kind === "quarantined" ? "Release host" : "Clear the flag"}
        />
      )}
      {host.drain_requested ? (
        <Act act={() => body(api.POST("/api/v1/hosts/{host_id}:undrain", params))} label="Undrain" />
      ) : (
        <Act
          act={() => body(api.POST("/api/v1/hosts/{host_id}:drain", params))}
          confirm={host.runs.length > 0 ? "Its runs stop in their grace and resume elsewhere." : undefined}
          label="Drain"
        />
      )}
    </div>
  );
}

/** Frees a quarantined device, on the word of the one who presses. */
export function ReleaseDevice({ device }: { device: Device }) {
  const params = { params: { path: { device_id: device.id } } };
  return (
    <Act
      act={() => body(api.POST("/api/v1/devices/{device_id}:release", params))}
      confirm="Is its last run certainly dead? Another run may get the device at once."
      label="Release device"
    />
  );
}

interface ActProps {
  label: string;
  act: () => Promise<unknown>;
  /** Asked before it is done, where the first press is not enough. */
  confirm?: string | undefined;
}

function Act({ label, act, confirm }: ActProps): ReactNode {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  const acting = useMutation({
    mutationFn: act,
    onSettled: () => {
      setAsking(false);
      return Promise.all([
        client.invalidateQueries({ queryKey: keys.hosts }),
        client.invalidateQueries({ queryKey: keys.devices }),
      ]);
    },
  });
  if (asking) {
    return (
      <div className="w-full space-y-2">
        <p>{confirm}</p>
        <div className="flex gap-2">
          <Button autoFocus compact disabled={acting.isPending} look="danger" onClick={() => acting.mutate()}>
            {label}
          </Button>
          <Button compact look="quiet" onClick={() => setAsking(false)}>
            Not now
          </Button>
        </div>
      </div>
    );
  }
  return (
    <>
      <Button
        compact
        disabled={acting.isPending}
        onClick={() => (confirm === undefined ? acting.mutate() : setAsking(true))}
      >
        {label}
      </Button>
      {acting.error && (
        <p className="w-full text-bad text-xs" role="alert">
          {isApiError(acting.error) ? acting.error.message : `${label} did not succeed.`}
        </p>
      )}
    </>
  );
}
