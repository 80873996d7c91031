"""The last minute of a member: nothing of it survives, everything it said is kept, one verdict is left."""

from drumline.contracts.reasons import EndReason
from drumline.wording import counted
from drumline_worker.clock import now
from drumline_worker.processes import end_all_children
from drumline_worker.rundir import Ending
from drumline_worker.shim.ending import Evidence, OomWatch, Verdict, judge
from drumline_worker.shim.inbox import Inbox
from drumline_worker.shim.intake import Intake
from drumline_worker.shim.journal import Journal, SpoolFullError
from drumline_worker.shim.output import OutputBuffer
from drumline_worker.shim.pump import Pump
from drumline_worker.shim.stopping import Stopper
from drumline_worker.tally import Tally

_PROOF_S = 10.0
"""A process that survives SIGKILL for so long hangs in the kernel; its devices are not given out."""

_NEVER_SENT = "the program ended before it had handed over all that it logged"
_MOST_LOST = 2**53 - 1
"""What a gap can say. The program may have written anything into its counters."""


def too_late(stopper: Stopper, at: float) -> Ending | None:
    """The end of a member whose lease was over before its process was started, as its host stood still; else None.

    By now it may run elsewhere. `at` is the present by CLOCK_BOOTTIME.
    """
    if stopper.due(at) is None:
        return None
    message = "The server had not been heard of for so long that its process was not started."
    return Ending(reason=EndReason.NOT_STARTED, message=message, last_seq=0, ended_at=now(), devices_released=True)


class Finish:
    """Made before the runner starts, since it compares the kernel's counters."""

    def __init__(self, stopper: Stopper, inbox: Inbox, journal: Journal, *, in_gang: bool) -> None:
        self._in_gang = in_gang
        self._stopper = stopper
        self._inbox = inbox
        self._journal = journal
        self._oom = OomWatch()

    def end_program(self, intake: Intake, output: OutputBuffer, logged: Tally) -> bool:
        """Ends the descendants, drains socket and pipes; whether nothing of the program is left.

        What the program logged and never handed over is a gap at the end.
        """
        released = end_all_children(_PROOF_S, lambda _pid, _status: None)
        intake.drain()
        output.close()
        self._tell_loss("metrics", logged.values - self._inbox.values, "value", output)
        self._tell_loss("reduction", logged.reductions - self._inbox.reductions, "reduction", output)
        return released

    def _tell_loss(self, what: str, lost: int, noun: str, output: OutputBuffer) -> None:
        if lost > 0:
            self._journal.gap(what, min(lost, _MOST_LOST), detail=_NEVER_SENT)
            output.note(f"[drumline: {counted(lost, noun)} lost here: {_NEVER_SENT}]")

    def ending(self, status: int, released: bool, output: OutputBuffer, pump: Pump, hang: str) -> Ending:
        """Writes the rest of the spool, judges."""
        verdict = self._verdict(status, hang, output.last_words)
        try:
            pump.flush()
        except SpoolFullError as error:
            verdict = Verdict(EndReason.SPOOL_FULL, f"Results could not be kept: {error}", None, None)
        return Ending(
            reason=verdict.reason,
            message=verdict.message,
            exit_code=verdict.exit_code,
            signal=verdict.signal,
            last_seq=self._journal.last_seq,
            ended_at=now(),
            devices_released=released,
            output_bytes=output.size_bytes,
        )

    def _verdict(self, status: int, hang: str, last_words: str) -> Verdict:
        return judge(
            Evidence(
                wait_status=status,
                has_result=self._inbox.has_result,
                failure=self._inbox.failure,
                stopper=self._stopper,
                out_of_memory=self._oom.happened(),
                in_gang=self._in_gang,
                last_words=last_words,
                hang=hang,
            )
        )
