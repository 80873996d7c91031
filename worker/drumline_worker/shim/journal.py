"""Gives events their seq and time, and appends them to the spool. What the disk does not take waits in memory."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from drumline.contracts.events import MAX_CUT_BYTES, GapEvent, LogEvent, MetricsEvent, WorkerEvent
from drumline_worker.host.clock import now
from drumline_worker.host.rundir import SPOOL_BYTES
from drumline_worker.host.spool import EVENT, MAX_RECORD_BYTES, SpoolWriter

MEMORY_BYTES = 64 * 1024 * 1024
"""What waits at most for a disk that is full; beyond it the program waits."""
_RESUME = 15 / 16
"""Of either cap: so far it is emptied before the program resumes, or it would stop and start with every segment."""
_BLANK = b'{"seq":1'
"""How every event begins until its seq is known."""
_KEPT_AT_ANY_COST = frozenset({"state", "placement", "checkpoint", "restored", "gap", "result", "summary", "time"})
"""Few and small, and what a run is known by."""


class SpoolFullError(OSError):
    """The disk takes no more: results can't be kept."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An event without its seq; what a gap in its place would say."""

    body: bytes
    what: str | None
    """None for what is kept at any cost."""
    count: int
    size_bytes: int


class Journal:
    """The only writer of the spool."""

    def __init__(self, spool: SpoolWriter, max_bytes: int = SPOOL_BYTES, memory_bytes: int = MEMORY_BYTES) -> None:
        self._spool = spool
        self._max_bytes = max_bytes
        self._memory_bytes = memory_bytes
        self._memory: deque[_Waiting] = deque()
        self._waiting_bytes = 0

    @property
    def last_seq(self) -> int:
        """Seq of the newest event on disk."""
        return self._spool.last_seq

    @property
    def newest_seq(self) -> int:
        """Seq that the newest event has, or will have on disk."""
        return self._spool.last_seq + len(self._memory)

    @property
    def full(self) -> bool:
        """Whether the caps are reached: who writes should wait. What is written all the same is kept."""
        return self._spool.size_bytes >= self._max_bytes or self._waiting_bytes >= self._memory_bytes

    @property
    def has_room(self) -> bool:
        """Whether who waited may resume."""
        on_disk = self._spool.size_bytes <= _RESUME * self._max_bytes
        return on_disk and self._waiting_bytes <= _RESUME * self._memory_bytes

    @property
    def waits_for_disk(self) -> bool:
        """Whether there are events that the disk has not taken."""
        return bool(self._memory)

    @property
    def needs_sync(self) -> bool:
        """Whether something written is not durable yet."""
        return self._spool.needs_sync

    def check(self, fields: dict[str, Any]) -> WorkerEvent:
        """The event that `fields` describe, without a place yet. Raises pydantic's ValidationError."""
        return EVENT.validate_python({**fields, "seq": 1, "at": now()})

    def write(self, event: WorkerEvent) -> None:
        """Appends the event, in pieces where it is long output or many metrics."""
        for piece, body in _cut(event):
            if len(body) > MAX_RECORD_BYTES:
                self.gap(_what(piece) or "spool", size_bytes=len(body))
            else:
                self._append(_to_waiting(piece, body))

    def record(self, kind: str, **fields: Any) -> None:
        """Checks and appends an event of our own."""
        self.write(self.check({"kind": kind, **fields}))

    def gap(self, what: str, count: int = 1, size_bytes: int = 0, detail: str = "") -> None:
        """Says at this place of the stream what is not kept."""
        self.record("gap", what=what, count=count, size_bytes=size_bytes, detail=detail)

    def catch_up(self) -> None:
        """Moves what waits in memory to the disk, as far as it takes it."""
        while self._memory and self._try(self._memory[0].body):
            self._waiting_bytes -= len(self._memory.popleft().body)

    def give_up(self) -> None:
        """The disk stays full and the program is over: what waits becomes gaps in its place, results are kept.

        Raises SpoolFullError where there is no room even for those.
        """
        self._spool.free_reserve()
        waiting, self._memory, self._waiting_bytes = self._memory, deque(), 0
        for what, events in groupby(waiting, key=lambda event: event.what):
            for body in _keep_or_gap(what, list(events)):
                self._spool_or_fail(body)

    def sync(self) -> None:
        """Makes everything on disk durable."""
        try:
            self._spool.sync()
        except OSError as error:
            raise SpoolFullError(*error.args) from error

    def _append(self, event: _Waiting) -> None:
        # Behind what waits, even if the disk has room again: seq is the order.
        if self._memory or not self._try(event.body):
            self._memory.append(event)
            self._waiting_bytes += len(event.body)

    def _try(self, body: bytes) -> bool:
        try:
            self._spool.append(b'{"seq":%d%b' % (self._spool.last_seq + 1, body))
        except OSError:
            return False
        return True

    def _spool_or_fail(self, body: bytes) -> None:
        if not self._try(body):
            raise SpoolFullError("the disk has no room for results")


def _cut(event: WorkerEvent) -> Iterator[tuple[WorkerEvent, bytes]]:
    """The event, with what stands after its seq, in so many pieces that none is too long."""
    body = event.model_dump_json().encode().removeprefix(_BLANK)
    halves = _halves(event) if len(body) + 20 > MAX_CUT_BYTES else ()
    if not halves:
        yield event, body
    for half in halves:
        yield from _cut(half)


def _halves(event: WorkerEvent) -> tuple[WorkerEvent, ...]:
    """Of output and metrics; nothing for what can't be cut."""
    if isinstance(event, LogEvent) and len(event.text) > 1:
        middle = len(event.text) // 2
        first, rest = event.text[:middle], event.text[middle:]
        offset = event.offset + len(first.encode())
        return event.model_copy(update={"text": first}), event.model_copy(update={"text": rest, "offset": offset})
    if isinstance(event, MetricsEvent) and len(event.names) > 1:
        middle = len(event.names) // 2
        return _columns(event, slice(middle)), _columns(event, slice(middle, None))
    return ()


def _columns(event: MetricsEvent, some: slice) -> MetricsEvent:
    return event.model_copy(
        update={column: getattr(event, column)[some] for column in ("names", "steps", "times", "values")}
    )


def _to_waiting(event: WorkerEvent, body: bytes) -> _Waiting:
    if isinstance(event, LogEvent):
        return _Waiting(body, "log", 1, len(event.text.encode()))
    count = len(event.names) if isinstance(event, MetricsEvent) else 1
    return _Waiting(body, _what(event), count, len(body))


def _what(event: WorkerEvent) -> str | None:
    """What a gap event calls the loss of `event`; None for what is kept at any cost."""
    if event.kind in _KEPT_AT_ANY_COST:
        return None
    return event.kind if event.kind in ("log", "metrics", "reduction", "media", "profile") else "spool"


def _keep_or_gap(what: str | None, events: list[_Waiting]) -> list[bytes]:
    """What is kept of neighbours of one kind: all of them, or a gap."""
    if what is None:
        return [event.body for event in events]
    count, size = sum(event.count for event in events), sum(event.size_bytes for event in events)
    gap = GapEvent.model_validate(
        {"seq": 1, "at": now(), "what": what, "count": count, "size_bytes": size, "detail": "the disk was full"}
    )
    return [gap.model_dump_json().encode().removeprefix(_BLANK)]
