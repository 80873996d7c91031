"""Gives events their seq and time, and appends them to the spool within its caps."""

from typing import Any

from pydantic import TypeAdapter

from drumline.contracts.events import GapEvent, WorkerEvent
from drumline_worker.clock import now
from drumline_worker.spool import MAX_RECORD_BYTES, SpoolWriter

MAX_SPOOL_BYTES = 256 * 1024 * 1024
"""Unacknowledged telemetry of one member on disk; results come on top."""
EVENT: TypeAdapter[WorkerEvent] = TypeAdapter(WorkerEvent)


class SpoolFullError(OSError):
    """The disk takes no more: results can't be kept."""


class Journal:
    """The only writer of the spool."""

    def __init__(self, spool: SpoolWriter, max_bytes: int = MAX_SPOOL_BYTES) -> None:
        self._spool = spool
        self._max_bytes = max_bytes
        self._dropped: dict[str, tuple[int, int]] = {}

    @property
    def last_seq(self) -> int:
        """Seq of the newest event."""
        return self._spool.last_seq

    @property
    def full(self) -> bool:
        """Whether the cap is reached: nothing but results and gaps is taken."""
        return self._spool.size_bytes >= self._max_bytes

    @property
    def needs_sync(self) -> bool:
        """Whether something written is not durable yet."""
        return self._spool.needs_sync

    def check(self, fields: dict[str, Any]) -> WorkerEvent:
        """The event that `fields` describe, without a place yet. Raises pydantic's ValidationError."""
        return EVENT.validate_python({**fields, "seq": 1, "at": now()})

    def write(self, event: WorkerEvent, critical: bool = False) -> bool:
        """Appends the event; False (and a gap to come) when the cap is reached and it isn't critical.

        Raises SpoolFullError when the disk takes no more.
        """
        if self.full and not critical:
            self.gap(gap_kind(event))
            return False
        self.write_gaps()
        self._append(event)
        return True

    def record(self, kind: str, **fields: Any) -> None:
        """Checks and appends a critical event of our own."""
        self.write(self.check({"kind": kind, **fields}), critical=True)

    def gap(self, what: str, count: int = 1, size_bytes: int = 0) -> None:
        """Counts what is not kept, so that a gap event says so before the next event."""
        events, size = self._dropped.get(what, (0, 0))
        self._dropped[what] = (events + count, size + size_bytes)

    def write_gaps(self) -> None:
        """Says what was dropped since it was last said."""
        dropped, self._dropped = self._dropped, {}
        for what, (count, size) in dropped.items():
            gap = GapEvent.model_validate({"seq": 1, "at": now(), "what": what, "count": count, "size_bytes": size})
            self._append(gap)

    def sync(self) -> None:
        """Makes everything durable."""
        try:
            self._spool.sync()
        except OSError as error:
            raise SpoolFullError(*error.args) from error

    def _append(self, event: WorkerEvent) -> None:
        record = event.model_copy(update={"seq": self._spool.last_seq + 1}).model_dump_json().encode()
        if len(record) > MAX_RECORD_BYTES:  # JSON grows when times and numbers are written out in full
            self.gap(gap_kind(event), size_bytes=len(record))
            return
        try:
            self._spool.append(record)
        except OSError as error:
            raise SpoolFullError(*error.args) from error


def gap_kind(event: WorkerEvent) -> str:
    """What a gap event calls the loss of `event`."""
    return event.kind if event.kind in ("log", "metrics", "reduction") else "spool"
