"""The shim's books: the journal, which is the only writer of the spool, and the timesheet, which is told in it.

The journal gives events their seq and time. What the disk does not take waits in memory. The timesheet says what a
member's time goes into: stretches of it, one after the other, each second in one of them.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from drumline.contracts.events import MAX_CUT_BYTES, GapEvent, LogEvent, MetricsEvent, WorkerEvent
from drumline.contracts.spent import Spent
from drumline.contracts.usage import Usage
from drumline_worker.host.rundir import SPOOL_BYTES, StartOrder
from drumline_worker.host.spool import EVENT, MAX_RECORD_BYTES, SpoolWriter
from drumline_worker.host.system import now
from drumline_worker.host.tally import PhaseSample, PhaseTimes
from drumline_worker.shim.usage import UsageMeter, figures_of

MEMORY_BYTES = 64 * 1024 * 1024
"""What waits at most for a disk that is full; beyond it the program waits."""
_RESUME = 15 / 16
"""Of either cap: so far it is emptied before the program resumes, or it would stop and start with every segment."""
_BLANK = b'{"seq":1'
"""How every event begins until its seq is known."""
_KEPT_AT_ANY_COST = frozenset({"state", "placement", "checkpoint", "restored", "gap", "result", "summary", "time"})
"""Few and small, and what a run is known by."""
LOOK_S = 0.2
"""How often it looks; where a phase begins is known exactly, how long a host stood still to half of this."""
FROZEN_S = 0.5
"""A shim that was woken so much later than it asked for did not run, and with it nothing of the host."""
_FIRST_STRETCH_S, _LONGEST_STRETCH_S = 1.0, 60.0
_STRETCHES = 256
"""After so many stretches they become twice as long: some 2 000 in the first day, then one a minute."""
_WHOLE = 0.05
"""Of a stretch's length: what is shorter is told together with what is beside it."""
_US = 1_000_000


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
    return event.kind if event.kind in ("log", "metrics", "reduction", "media", "profile", "artifact") else "spool"


def _keep_or_gap(what: str | None, events: list[_Waiting]) -> list[bytes]:
    """What is kept of neighbours of one kind: all of them, or a gap."""
    if what is None:
        return [event.body for event in events]
    count, size = sum(event.count for event in events), sum(event.size_bytes for event in events)
    gap = GapEvent.model_validate(
        {"seq": 1, "at": now(), "what": what, "count": count, "size_bytes": size, "detail": "the disk was full"}
    )
    return [gap.model_dump_json().encode().removeprefix(_BLANK)]


@dataclass(frozen=True, slots=True)
class _Piece:
    end: float
    spent_s: dict[Spent, float]


class Timesheet:
    """Looks at the program's phases and at its own sleep. Times are CLOCK_BOOTTIME, in seconds."""

    def __init__(self, journal: Journal, order: StartOrder, times: PhaseTimes, usage: UsageMeter | None = None) -> None:
        self._journal = journal
        self._usage = usage if order.claimed.takes_usage else None
        self._is_drawn = order.claimed.rendezvous.rank == 0
        """Of a gang one member's usage is in the charts, as of its steps."""
        self._times = times
        self._is_wanted = order.claimed.takes_times and order.probe_steps is None and order.chips is None
        self._last = times.read()
        self._origin = self._last.at if order.claimed_at is None else min(order.claimed_at, self._last.at)
        self._open: dict[Spent, float] = {}
        self._began = self._ended = self._origin
        self._told = 0
        self._asleep: tuple[float, float] | None = None
        self._frozen_s = 0.0
        for phase, until in ((Spent.RENDEZVOUS, order.complete_at), (Spent.BUNDLE, order.unpacked_at)):
            if until is not None and self._ended < until <= self._last.at:
                self._add(_Piece(until, {phase: until - self._ended}))
        # The process itself began before its first look, in the phase that all begin in.
        self._add(_Piece(self._last.at, {Spent.LAUNCH: self._last.at - self._ended}))

    def sleep(self, now: float, wait_s: float) -> None:
        """The shim goes to sleep for at most so long."""
        self._asleep = now, wait_s

    def wake(self, now: float) -> None:
        """It woke."""
        if self._asleep is not None:
            began, wait_s = self._asleep
            late_s = now - began - wait_s
            # It stood still at some time of its sleep: in the middle, as far as anybody knows.
            self._frozen_s += late_s + wait_s / 2 if late_s >= FROZEN_S else 0.0
            self._asleep = None

    def look(self, *, waits: bool) -> None:
        """What the time since the last look went into. `waits`: the program was made to wait for its telemetry."""
        before, sample = self._last, self._times.read()
        if sample.at - before.at < LOOK_S and not self._frozen_s:
            return
        self._last = sample
        total_s = sample.at - before.at
        delta = {phase: max(0.0, spent - before.spent_s[phase]) for phase, spent in sample.spent_s.items()}
        frozen_s, self._frozen_s = min(self._frozen_s, total_s), 0.0
        if waits:
            self._add(_Piece(sample.at, {Spent.WAITING_FOR_TELEMETRY: total_s - frozen_s, Spent.FROZEN: frozen_s}))
        elif frozen_s:
            longest = max(delta, key=lambda phase: delta[phase])
            delta[longest] = max(0.0, delta[longest] - frozen_s)
            self._add(_Piece(sample.at, {**delta, Spent.FROZEN: frozen_s}))
        else:
            for piece in _split(delta, before, sample, _WHOLE * self._stretch_s):
                self._add(piece)

    def end(self) -> None:
        """The program is dead: what is left is to end."""
        self._times.enter(Spent.ENDING)

    def close(self) -> None:
        """Tells the rest."""
        self.look(waits=False)
        sample = self._times.read()
        if sample.at > self._ended:
            self._add(_Piece(sample.at, {Spent.ENDING: sample.at - self._ended}))
        self._tell()

    @property
    def _stretch_s(self) -> float:
        return min(_LONGEST_STRETCH_S, _FIRST_STRETCH_S * 2.0 ** (self._told // _STRETCHES))

    def _add(self, piece: _Piece) -> None:
        """Joins the piece to the open stretch, or begins another: what is of one name is kept apart if it lasts."""
        spent = {phase: seconds for phase, seconds in piece.spent_s.items() if seconds > 0}
        if piece.end <= self._ended or not spent:
            return
        is_alike = self._open.keys() == spent.keys()
        whole_s = _WHOLE * self._stretch_s
        if self._open and not is_alike and self._ended - self._began >= whole_s:
            self._tell()
        for phase, seconds in spent.items():
            self._open[phase] = self._open.get(phase, 0.0) + seconds
        self._ended = piece.end
        if self._ended - self._began >= self._stretch_s:
            self._tell()

    def _tell(self) -> None:
        if not self._open:
            return
        begin_us = self._us(self._began)
        spent_us = _shares(self._open, self._us(self._ended) - begin_us)
        if spent_us and self._is_wanted:
            end_us, usage = self._us(self._ended), self._read_usage()
            told = {} if usage is None else {"usage": usage.model_dump(mode="json")}
            self._journal.record(
                "time", begin_us=begin_us, end_us=end_us, spent_us=spent_us, step=self._last.step, **told
            )
        self._told += 1
        self._open, self._began = {}, self._ended

    def _read_usage(self) -> Usage | None:
        usage = None if self._usage is None else self._usage.read(self._last.at)
        if usage is not None and self._is_drawn:
            figures, step = figures_of(usage), self._last.step or 0
            names, count = [*figures], len(figures)
            columns = {"steps": [step] * count, "times": [now()] * count, "values": [*figures.values()]}
            self._journal.record("metrics", names=names, **columns)
        return usage

    def _us(self, at: float) -> int:
        return max(0, math.floor((at - self._origin) * _US))


def _split(delta: dict[Spent, float], before: PhaseSample, sample: PhaseSample, at_least_s: float) -> list[_Piece]:
    """The time before the present phase began, and since, if it did between two looks and has lasted."""
    if not before.at < sample.since <= sample.at - at_least_s:
        return [_Piece(sample.at, delta)]
    since_s = min(sample.at - sample.since, delta[sample.current])
    rest = {**delta, sample.current: delta[sample.current] - since_s}
    return [_Piece(sample.since, rest), _Piece(sample.at, {sample.current: since_s})]


def _shares(spent_s: dict[Spent, float], total_us: int) -> dict[str, int]:
    """In microseconds, together exactly the whole."""
    told_s = sum(spent_s.values())
    if total_us <= 0 or told_s <= 0:
        return {}
    shares = {phase.value: math.floor(total_us * seconds / told_s) for phase, seconds in spent_s.items()}
    longest = max(shares, key=lambda phase: shares[phase])
    shares[longest] += total_us - sum(shares.values())
    return {phase: share for phase, share in shares.items() if share > 0}
