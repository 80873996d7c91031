"""What the program's process may tell its shim. It is hostile until proven otherwise: everything is checked here."""

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from drumline.contracts.base import Contract, Text
from drumline.contracts.events import (
    MAX_RESULT_BYTES,
    CheckpointEvent,
    MetricsEvent,
    ProgressEvent,
    ResultEvent,
    WorkerEvent,
)
from drumline.contracts.reasons import EndReason
from drumline.contracts.storable import unstorable
from drumline_worker.framing import MAX_MESSAGE_BYTES, Decoder, FramingError, parse
from drumline_worker.shim.budget import Bucket
from drumline_worker.shim.journal import Journal, gap_kind
from drumline_worker.shim.output import OutputBuffer
from drumline_worker.shim.thinning import Point, Thinner, points_of
from drumline_worker.shim.tick import Tick

MAX_REFUSALS_NOTED = 20
EVENTS_PER_S, EVENTS_BURST = 500.0, 10_000.0
BYTES_PER_S, BYTES_BURST = 8.0 * 1024 * 1024, 64.0 * 1024 * 1024
POINTS_PER_S, POINTS_BURST = 5_000.0, 50_000.0
_FROM_PROGRAM = frozenset(
    {"state", "placement", "variable", "progress", "metrics", "reduction", "checkpoint", "restored", "gap", "result"}
)
_NEVER_DROPPED = frozenset({"result", "checkpoint", "restored", "placement", "state"})


class Failure(Contract):
    """The runner's own account of why it will exit with code 1. Believed only together with that exit code."""

    kind: Literal["failed"] = "failed"
    reason: Literal[
        EndReason.PROGRAM_ERROR,
        EndReason.BAD_PROGRAM,
        EndReason.BAD_RESULT,
        EndReason.OUT_OF_MEMORY,
        EndReason.START_FAILED,
        EndReason.CANCELLED,
        EndReason.PEER_LOST,
    ]
    message: Annotated[Text, Field(max_length=8_000)] = ""


class Inbox:
    """Takes the bytes of the runner's socket, keeps what is well-formed and within budget, refuses the rest."""

    def __init__(self, journal: Journal, output: OutputBuffer, fence: int, on_tick: Callable[[Tick], None]) -> None:
        self._journal = journal
        self._fence = fence
        self._checkpoint_seqs: list[int] = []
        self._output = output
        self._decoder = Decoder(MAX_MESSAGE_BYTES)
        self._events = Bucket(EVENTS_PER_S, EVENTS_BURST)
        self._bytes = Bucket(BYTES_PER_S, BYTES_BURST)
        self._points = Bucket(POINTS_PER_S, POINTS_BURST)
        self.thinner = Thinner()
        self.has_result = False
        self.failure: Failure | None = None
        self.progress: ProgressEvent | None = None
        self._on_tick = on_tick
        self.refused = 0

    def feed(self, raw: bytes) -> bool:
        """Takes more bytes; False when the framing is broken and the socket must be closed."""
        try:
            for payload in self._decoder.feed(raw):
                self._take(payload)
        except FramingError as error:
            self._refuse(str(error))
            return False
        return True

    def checkpoints_until(self, seq: int) -> int:
        """How many of the program's checkpoints are among the events up to `seq`."""
        return bisect_right(self._checkpoint_seqs, seq)

    def flush_metrics(self) -> None:
        """Writes what thinning kept of the last second."""
        points, dropped = self.thinner.take()
        if dropped:
            self._journal.gap("metrics", dropped)
        if points:
            self._journal.write(self._journal.check(_columns(points)))

    def _take(self, payload: bytes) -> None:
        try:
            message = parse(payload)
            if message.get("kind") == "tick":
                self._on_tick(Tick.model_validate(message))
                return
            if message.get("kind") == "failed":
                self.failure = self.failure or Failure.model_validate(message)
                return
            event = self._event(message, len(payload))
        except ValidationError as error:
            self._refuse(f"{error.error_count()} wrong fields, first: {error.errors()[0]['msg']}")
        except FramingError as error:
            self._refuse(str(error))
        else:
            if event is not None:
                self._admit(event, len(payload))

    def _event(self, message: dict[str, Any], size: int) -> WorkerEvent | None:
        kind = message.get("kind")
        if not isinstance(kind, str) or kind not in _FROM_PROGRAM:
            self._refuse(f"a program may not send {kind!r:.60}")
            return None
        if {"seq", "at"} & message.keys():
            self._refuse(f"a {kind} event came with a seq or time of its own")
            return None
        if kind == "result" and (self.has_result or size > MAX_RESULT_BYTES + 1_024):
            self._refuse("a second result" if self.has_result else f"a result of {size} bytes")
            return None
        event = self._journal.check(message)
        if isinstance(event, MetricsEvent) and not _is_rectangular(event):
            self._refuse("a metrics event with columns of different lengths")
            return None
        if isinstance(event, CheckpointEvent) and event.path != f"f{self._fence}/step_{event.step}":
            self._refuse(f"a checkpoint at {event.path!r:.60}; its place is f{self._fence}/step_{event.step}")
            return None
        if isinstance(event, ResultEvent) and (flaw := unstorable(event.value)):
            self._refuse(f"a result that {flaw}")
            return None
        return event

    def _admit(self, event: WorkerEvent, size: int) -> None:
        now = time.monotonic()
        if event.kind in _NEVER_DROPPED:
            self._events.force(1, now)
            self._journal.write(event, critical=event.kind in ("result", "checkpoint", "restored"))
            if event.kind == "checkpoint":
                self._checkpoint_seqs.append(self._journal.last_seq)
            self.has_result = self.has_result or event.kind == "result"
            return
        if isinstance(event, ProgressEvent):
            self.progress = event
        if isinstance(event, MetricsEvent) and not self._points.take(len(event.names), now):
            self.thinner.add(points_of(event))
        elif self._events.take(1, now) and self._bytes.take(size, now):
            self._journal.write(event)
        else:
            self._journal.gap(gap_kind(event))

    def _refuse(self, why: str) -> None:
        self.refused += 1
        if self.refused <= MAX_REFUSALS_NOTED:
            self._output.note(f"refused a message of the program's process: {why}")


def _is_rectangular(event: MetricsEvent) -> bool:
    return len(event.names) == len(event.steps) == len(event.times) == len(event.values)


def _columns(points: list[Point]) -> dict[str, object]:
    return {
        "kind": "metrics",
        "names": tuple(point.name for point in points),
        "steps": tuple(point.step for point in points),
        "times": tuple(point.at_micros for point in points),
        "values": tuple(point.value for point in points),
    }
