"""Moves what waits in memory to the spool at the right moments."""

import time

from drumline_worker.shim.journal import Journal
from drumline_worker.shim.output import OutputBuffer

OUTPUT_DELAY_S = 0.05
"""Output is collected this long, so that a chatty program makes few events."""
MOST_WAITING_BYTES = 256 * 1024
"""So much output is not collected any longer."""
SYNC_S = 1.0
DISK_S = 0.5
"""How often a full disk is tried again."""
_IDLE_S = 3_600.0


class Pump:
    """Three timers: output, what the disk did not take, fsync. None of them runs while there is nothing to do."""

    def __init__(self, journal: Journal, output: OutputBuffer) -> None:
        self._journal = journal
        self._output = output
        self._due: dict[str, float] = {}

    def patience(self) -> float:
        """Seconds until `turn` has something to do."""
        self._arm()
        return max(0.0, min(self._due.values(), default=time.monotonic() + _IDLE_S) - time.monotonic())

    def turn(self) -> None:
        """Does what is due. Raises SpoolFullError."""
        self._arm()
        now = time.monotonic()
        if self._is_due("output", now):
            self.write_output()
        if self._is_due("disk", now):
            self._journal.catch_up()
        if self._is_due("sync", now):
            self._journal.sync()

    def write_output(self) -> None:
        """Writes the output that was collected."""
        for chunk in self._output.take_all():
            self._journal.record("log", stream=chunk.stream, text=chunk.text, offset=chunk.offset)

    def flush(self) -> None:
        """Writes everything durably; what a full disk does not take becomes gaps. Raises SpoolFullError."""
        self.write_output()
        self._journal.catch_up()
        if self._journal.waits_for_disk:
            self._journal.give_up()
        self._journal.sync()

    def _arm(self) -> None:
        now = time.monotonic()
        output_s = OUTPUT_DELAY_S if self._output.waiting_bytes < MOST_WAITING_BYTES else 0.0
        for name, wanted, delay in (
            ("output", self._output.pending, output_s),
            ("disk", self._journal.waits_for_disk, DISK_S),
            ("sync", self._journal.needs_sync, SYNC_S),
        ):
            if wanted:
                self._due[name] = min(self._due.get(name, now + delay), now + delay)

    def _is_due(self, name: str, now: float) -> bool:
        if self._due.get(name, now + 1) > now:
            return False
        del self._due[name]
        return True
