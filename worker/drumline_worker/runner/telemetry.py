"""Collects what the step reports and sends it from a thread of its own, so that the step never waits for it."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drumline.distribute.observe import ReductionRecord, StepRecord
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.pace import Pace, Window
from drumline_worker.runner.records import reduction_fields

FLUSH_S = 0.25
MAX_POINTS = 250_000
"""About 40 MB; a program that logs faster than this thread sends for long waits for it."""
MAX_REDUCTIONS = 4_096
MAX_REDUCTION_BYTES = 128 * 1024 * 1024
"""Arrays that wait to be summarized are kept on their devices; one reduction always is, however large."""
POINTS_PER_EVENT = 500
"""So many nearly always fit in an event (`contracts.events.MAX_CUT_BYTES`)."""
_LOOK_AGAIN_S = 1.0
"""How often who waits looks whether the sending thread is still there: without a shim it has ended."""
_UNREADABLE = (RuntimeError, TypeError, ValueError, OverflowError)
"""What reading an array can raise: it was donated to a later step, its computation failed, it is no real number."""


@dataclass(frozen=True, slots=True)
class _Point:
    name: str
    step: int
    at_micros: int
    value: Any  # a number, or a device array with one element

    def number(self) -> float:
        return float(self.value)


class Telemetry:
    """Points, reductions and progress. Who reports faster than the thread can send waits for it (rule P12).

    `on_wait` is called about once a second by who waits, and may raise to give up.
    """

    def __init__(self, channel: Channel, on_wait: Callable[[], None] = lambda: None) -> None:
        self._channel = channel
        self._on_wait = on_wait
        self._changed = threading.Condition()
        self._points: deque[_Point] = deque()
        self._reductions: deque[ReductionRecord] = deque()
        self._reduction_bytes = 0
        self._pace = Pace()
        self._figures: dict[str, float] = {}
        self._logged_step: int | None = None
        self._total_steps: int | None = None
        self._last_collective: str | None = None
        self._dirty = False
        self._hurried = False
        self._closed = False
        self._flushes_wanted = self._flushes_done = 0
        self._thread = threading.Thread(target=self._send_forever, name="drumline-telemetry", daemon=True)
        self._thread.start()

    def point(self, name: str, step: int, value: Any) -> None:
        """A scalar, possibly still being computed on a device. Any: number or array."""
        with self._changed:
            self._await_room(lambda: len(self._points) < MAX_POINTS)
            self._points.append(_Point(name, step, time.time_ns() // 1_000, value))
            self._logged_step = step
            self._wake()

    def reduction(self, record: ReductionRecord) -> None:
        """A reduction with its raw arrays."""
        size = _size_of(record)
        with self._changed:
            self._await_room(lambda: self._has_room_for(size))
            self._reductions.append(record)
            self._reduction_bytes += size
            self._wake()

    def step(self, record: StepRecord) -> None:
        """A step that was dispatched. The first is told at once."""
        with self._changed:
            self._hurried = self._hurried or self._pace.last_step is None
            self._note_pace(self._pace.add(record))
            self._wake()

    def collective(self, name: str) -> None:
        """The collective that was left last."""
        self._last_collective = name

    def total_steps(self, total: int) -> None:
        """How many steps there will be."""
        with self._changed:
            self._total_steps = total
            self._wake()

    def flush(self) -> None:
        """Returns once everything recorded before is sent: what is sent after it is behind it in the stream."""
        with self._changed:
            self._flushes_wanted += 1
            mine = self._flushes_wanted
            self._dirty = self._hurried = True
            self._changed.notify_all()
            while self._flushes_done < mine and self._thread.is_alive():
                self._changed.wait(_LOOK_AGAIN_S)

    def close(self) -> None:
        """Sends what is left and returns when it is sent."""
        with self._changed:
            self._note_pace(self._pace.rest())
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _has_room_for(self, size: int) -> bool:
        fits = len(self._reductions) < MAX_REDUCTIONS and self._reduction_bytes + size <= MAX_REDUCTION_BYTES
        return fits or not self._reductions

    def _await_room(self, has_room: Callable[[], bool]) -> None:
        """Holds the lock but while it waits. Without a sending thread there is nobody to tell, nor to wait for."""
        while not has_room() and self._thread.is_alive():
            self._hurried = self._dirty = True
            self._changed.notify_all()
            if not self._changed.wait_for(has_room, _LOOK_AGAIN_S):
                self._on_wait()

    def _note_pace(self, window: Window | None) -> None:
        """Windows are cut where the program steps: this thread's delays do not show in them."""
        if window is None:
            return
        self._figures = window.figures
        at, step = time.time_ns() // 1_000, window.step if self._logged_step is None else self._logged_step
        for name, value in window.figures.items():
            self._points.append(_Point(f"sys/{name}", step, at, value))
        self._wake()

    def _wake(self) -> None:
        if not self._dirty or self._hurried:
            self._dirty = True
            self._changed.notify_all()

    def _send_forever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._dirty or self._closed)
                self._changed.wait_for(lambda: self._closed or self._hurried, timeout=FLUSH_S)
                closed = self._closed
                wanted = self._dirty
            if wanted:
                self._flush()
            if closed:
                return

    def _flush(self) -> None:
        with self._changed:
            points, self._points = self._points, deque()
            reductions, self._reductions, self._reduction_bytes = self._reductions, deque(), 0
            self._dirty = self._hurried = False
            flush = self._flushes_wanted
            self._changed.notify_all()
        self._send_progress()
        self._send_reductions(reductions)
        self._send_points(points)
        with self._changed:
            self._flushes_done = flush
            self._changed.notify_all()

    def _send_progress(self) -> None:
        """How many steps are done, in the program's own count where it logs one."""
        self._channel.send(
            "progress",
            step=self._steps_done(),
            total_steps=self._total_steps,
            steps_per_s=self._figures.get("steps_per_s"),
            examples_per_s=self._figures.get("examples_per_s"),
            last_collective=self._last_collective,
        )

    def _steps_done(self) -> int:
        """Steps are counted from 0, so the last one named is one less than are done."""
        last = self._pace.last_step if self._logged_step is None else self._logged_step
        done = 0 if last is None else last + 1
        return done if self._total_steps is None else min(done, self._total_steps)

    def _send_reductions(self, reductions: deque[ReductionRecord]) -> None:
        """Lets go of each as soon as it is sent: it holds arrays on devices."""
        while reductions:
            try:
                fields = reduction_fields(reductions.popleft())
            except _UNREADABLE:
                self._channel.send("gap", what="reduction", count=1)
            else:
                self._channel.send_fields(fields)

    def _send_points(self, points: deque[_Point]) -> None:
        """Sends the points in their order, and a gap in the place of those whose value is gone or no float."""
        some: list[tuple[_Point, float]] = []
        lost = 0
        while points:
            point = points.popleft()
            try:
                number = point.number()
            except _UNREADABLE:
                self._send_columns(some)
                some, lost = [], lost + 1
                continue
            if lost:
                self._channel.send("gap", what="metrics", count=lost)
                lost = 0
            some.append((point, number))
            if len(some) == POINTS_PER_EVENT:
                self._send_columns(some)
                some = []
        self._send_columns(some)
        if lost:
            self._channel.send("gap", what="metrics", count=lost)

    def _send_columns(self, some: list[tuple[_Point, float]]) -> None:
        if some:
            self._channel.send(
                "metrics",
                names=[point.name for point, _ in some],
                steps=[point.step for point, _ in some],
                times=[point.at_micros for point, _ in some],
                values=[number for _, number in some],
            )


def _size_of(record: ReductionRecord) -> int:
    return sum(int(getattr(array, "nbytes", 0)) for array in (*record.inputs, record.result))
