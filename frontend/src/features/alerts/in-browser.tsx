import { useState } from "react";
import { Button } from "@/components/ui/button";
import { canTell, setBrowserAlerts, useBrowserAlerts } from "@/lib/alerts/choice";

/** Has this browser tell of one's own runs: once its person asks for it, and the browser agrees. */
export function InBrowser() {
  const on = useBrowserAlerts();
  const able = canTell();
  const [allowed, setAllowed] = useState(able ? Notification.permission : "denied");
  if (!able) {
    return <p className="py-3 text-muted">This browser shows alerts of pages over https only.</p>;
  }
  const ask = async () => {
    const answer = await Notification.requestPermission();
    setAllowed(answer);
    setBrowserAlerts(answer === "granted");
  };
  const active = on && allowed === "granted";
  return (
    <div className="space-y-2 py-3">
      <p>
        {active
          ? "This browser tells when a run of yours ends, has its first NaN or stands still, while a tab of Drumline is open."
          : "This browser can tell when a run of yours ends, has its first NaN or stands still, while a tab of Drumline is open."}
      </p>
      {allowed === "denied" ? (
        <p className="text-warn">It was told not to; allow it in the browser's settings of this site.</p>
      ) : (
        <Button compact onClick={() => (active ? setBrowserAlerts(false) : void ask())}>
          {active ? "Tell no more" : "Tell me in this browser"}
        </Button>
      )}
    </div>
  );
}
