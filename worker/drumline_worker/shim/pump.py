"""Moves what waits in memory to the spool at the right moments."""

import time
from collections.abc import Callable

from drumline_worker.shim.journal import Journal
from drumline_worker.shim.output import Chunk, Dropped, OutputBuffer
from drumline_worker.shim.thinning import Thinner

OUTPUT_DELAY_S = 0.05
"""Output is collected this long, so that a chatty program makes few events."""
THIN_S = 1.0
SYNC_S = 1.0
_IDLE_S = 3_600.0


class Pump:
    """Three timers: output, thinned metrics, fsync. None of them runs while there is nothing to do."""

    def __init__(
        self, journal: Journal, output: OutputBuffer, thinner: Thinner, flush_metrics: Callable[[], None]
    ) -> None:
        self._journal = journal
        self._output = output
        self._thinner = thinner
        self._flush_metrics = flush_metrics
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
            self._write_output(now)
        if self._is_due("metrics", now):
            self._flush_metrics()
        if self._is_due("sync", now):
            self._journal.sync()

    def flush(self) -> None:
        """Writes everything and makes it durable. Raises SpoolFullError."""
        self._flush_metrics()
        for piece in self._output.take_all():
            self._write_piece(piece)
        self._journal.write_gaps()
        self._journal.sync()

    def _arm(self) -> None:
        now = time.monotonic()
        for name, wanted, delay in (
            ("output", self._output.pending, OUTPUT_DELAY_S),
            ("metrics", self._thinner.pending, THIN_S),
            ("sync", self._journal.needs_sync, SYNC_S),
        ):
            if wanted:
                self._due.setdefault(name, now + delay)

    def _is_due(self, name: str, now: float) -> bool:
        if self._due.get(name, now + 1) > now:
            return False
        del self._due[name]
        return True

    def _write_output(self, now: float) -> None:
        while not self._journal.full and (piece := self._output.take(now)) is not None:
            self._write_piece(piece)

    def _write_piece(self, piece: Chunk | Dropped) -> None:
        if isinstance(piece, Dropped):
            self._journal.gap("log", piece.chunks, piece.size)
        else:
            self._journal.record("log", stream=piece.stream, text=piece.text, offset=piece.offset)
