import { Button } from "@/components/ui/button";
import { canTell, followRun, useIsFollowed } from "@/lib/alerts/choice";
import { notify } from "@/lib/notices";

/** Has this browser tell of one run, whoever it belongs to: its end, its first NaN, and that it stands still. */
export function NotifyMe({ runId }: { runId: string }) {
  const followed = useIsFollowed(runId);
  if (!canTell()) return null;
  const active = followed && Notification.permission === "granted";
  const ask = async () => {
    if ((await Notification.requestPermission()) === "granted") followRun(runId, true);
    else notify("This browser was told to show no alerts; allow them in its settings of this site.");
  };
  return (
    <Button
      aria-pressed={active}
      className="aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent"
      compact
      onClick={() => (active ? followRun(runId, false) : void ask())}
      title="This browser tells when the run ends, has its first NaN or stands still, while a tab of Drumline is open."
    >
      Notify me
    </Button>
  );
}
