"""Collects what the step reports and sends it from a thread of its own, so that the step never waits for it."""

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from drumline.distribute.observe import ReductionRecord, StepRecord
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.pace import Pace, Window
from drumline_worker.runner.records import reduction_fields

FLUSH_S = 0.25
MAX_POINTS = 250_000
"""About 40 MB; a program that logs faster than this thread sends for long loses the oldest."""
MAX_REDUCTIONS = 4_096
MAX_REDUCTION_BYTES = 128 * 1024 * 1024
"""Arrays that wait to be summarized are kept on their devices; the newest reduction is, however large."""
POINTS_PER_EVENT = 2_000
_LOOK_AGAIN_S = 1.0
"""How often a flush looks whether the sending thread is still there: without a shim it has ended."""
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
    """Points, reductions and progress; the oldest go first when the thread cannot keep up."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._changed = threading.Condition()
        self._points: deque[_Point] = deque()
        self._reductions: deque[ReductionRecord] = deque()
        self._reduction_bytes = 0
        self._lost = {"metrics": 0, "reduction": 0}
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
            self._add_point(_Point(name, step, time.time_ns() // 1_000, value))
            self._logged_step = step
            self._wake()

    def reduction(self, record: ReductionRecord) -> None:
        """A reduction with its raw arrays."""
        with self._changed:
            self._reductions.append(record)
            self._reduction_bytes += _size_of(record)
            while len(self._reductions) > 1 and self._has_too_many_reductions():
                self._reduction_bytes -= _size_of(self._reductions.popleft())
                self._lost["reduction"] += 1
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

    def _has_too_many_reductions(self) -> bool:
        return len(self._reductions) > MAX_REDUCTIONS or self._reduction_bytes > MAX_REDUCTION_BYTES

    def _note_pace(self, window: Window | None) -> None:
        """Windows are cut where the program steps: this thread's delays do not show in them."""
        if window is None:
            return
        self._figures = window.figures
        at, step = time.time_ns() // 1_000, window.step if self._logged_step is None else self._logged_step
        for name, value in window.figures.items():
            self._add_point(_Point(f"sys/{name}", step, at, value))
        self._wake()

    def _add_point(self, point: _Point) -> None:
        if len(self._points) >= MAX_POINTS:
            self._points.popleft()
            self._lost["metrics"] += 1
        self._points.append(point)

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
            lost, self._lost = self._lost, {"metrics": 0, "reduction": 0}
            self._dirty = self._hurried = False
            flush = self._flushes_wanted
        self._send_progress()
        for record in reductions:
            try:
                fields = reduction_fields(record)
            except _UNREADABLE:
                lost["reduction"] += 1
                continue
            self._channel.send_fields(fields)
        lost["metrics"] += self._send_points(list(points))
        for what, count in lost.items():
            if count:
                self._channel.send("gap", what=what, count=count)
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

    def _send_points(self, points: list[_Point]) -> int:
        """Sends the points; returns how many had a value that is gone or no float."""
        numbers = []
        for point in points:
            try:
                numbers.append((point, point.number()))
            except _UNREADABLE:
                continue
        for start in range(0, len(numbers), POINTS_PER_EVENT):
            some = numbers[start : start + POINTS_PER_EVENT]
            self._channel.send(
                "metrics",
                names=[point.name for point, _ in some],
                steps=[point.step for point, _ in some],
                times=[point.at_micros for point, _ in some],
                values=[number for _, number in some],
            )
        return len(points) - len(numbers)


def _size_of(record: ReductionRecord) -> int:
    return sum(int(getattr(array, "nbytes", 0)) for array in (*record.inputs, record.result))
