"""Collects what the step reports and sends it from a thread of its own, so that the step never waits for it."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from drumline.distribute.observe import ReductionRecord, StepRecord
from drumline.distribute.observe.non_finite import NonFinite, WatchedCall
from drumline.local.media import Taken
from drumline.media import SummaryValue
from drumline_worker.host.tally import BegunTrace, Tally
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.reports import (
    MediaReports,
    NonFiniteReports,
    Point,
    ReductionReports,
    send_points,
    size_of,
)
from drumline_worker.runner.step_numbers import Numbered, StepNumbers
from drumline_worker.runner.step_traces import ProfileReports, TracedSteps
from drumline_worker.runner.throughput import Meter, StepRate, Window

FLUSH_S = 0.25
MAX_POINTS = 250_000
"""About 40 MB; a program that logs faster than this thread sends for long waits for it."""
MAX_REDUCTIONS = 4_096
MAX_REDUCTION_BYTES = 128 * 1024 * 1024
"""Arrays that wait to be summarized are kept on their devices; one reduction always is, however large."""
_LOOK_AGAIN_S = 1.0
"""How often who waits looks whether the sending thread is still there: without a shim it has ended."""
_RATES = frozenset({"steps_per_s", "examples_per_s", "tokens_per_s", "hfu_percent", "mfu_percent"})


@dataclass(frozen=True, slots=True)
class _Speed:
    """A window of calls that ended before the program named a step."""

    window: Window
    at_micros: int


_Record = ReductionRecord | NonFinite | TracedSteps | _Speed
"""What waits for its step to be named."""


class StepListener(Protocol):
    """Hears what the program says of its steps, on the program's thread."""

    def step_named(self, step: int) -> None:
        """The program is done with a step."""

    def total_told(self, total: int) -> None:
        """There will be so many steps."""


class Telemetry:
    """Points, reductions and progress. Who reports faster than the thread can send waits for it (rule P12).

    `on_wait` is called about once a second by who waits, and may raise to give up. `tally` counts what is to be sent.
    `listener` hears of the program's steps as well. `meter` adds up what they are made of. `profiles` sends those
    that were traced. `reports` sends reductions, as the server takes them.
    """

    def __init__(
        self,
        channel: Channel,
        on_wait: Callable[[], None] = lambda: None,
        tally: Tally | None = None,
        listener: StepListener | None = None,
        meter: Meter | None = None,
        *,
        profiles: ProfileReports | None = None,
        reports: ReductionReports | None = None,
    ) -> None:
        self._channel = channel
        self._reduction_reports = reports or ReductionReports(channel)
        self._on_wait = on_wait
        self._tally = tally or Tally()
        self._listener = listener
        self._changed = threading.Condition()
        self._points: deque[Point] = deque()
        self._steps: StepNumbers[_Record] = StepNumbers()
        self._non_finite = NonFiniteReports(channel)
        self._media = MediaReports(channel, self._tally)
        self._non_finite_numbered: list[Numbered[NonFinite]] = []
        self._profiles = profiles
        self._traced: list[Numbered[TracedSteps]] = []
        self._reductions: deque[Numbered[ReductionRecord]] = deque()
        self._reduction_bytes = 0
        """Of those that wait to be sent, and of those whose step is not named yet."""
        self._meter = meter or Meter()
        self._rate = StepRate(self._meter.work)
        self._present: Window | None = None
        self._is_still = False
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
            self._add_point(Point(name, step, time.time_ns() // 1_000, value))
            self._wake()

    def check_media(self, logged: Mapping[str, Taken]) -> None:
        """Raises MediaError where the program has logged as much beside numbers as one may."""
        with self._changed:
            self._media.check_room(logged)

    def media(self, name: str, step: int, taken: Taken) -> None:
        """A histogram, image, text or table, possibly still on a device."""
        with self._changed:
            self._await_room(lambda: self._media.has_room(taken.nbytes))
            self._media.add(name, step, taken)
            self._wake()

    def summary(self, values: Mapping[str, SummaryValue]) -> None:
        """Values of the run's summary."""
        with self._changed:
            self._media.set_summary(values)
            self._wake()

    def name_step(self, step: int) -> None:
        """The program is done with a step: what was recorded since it named the last one belongs to it, or before."""
        if self._listener is not None:
            self._listener.step_named(step)
        with self._changed:
            was_named, first = self._steps.named is not None, self._steps.next
            gained, numbered = self._steps.name(step)
            self._tally.times.note_step(self._steps.done)
            for one in numbered:
                # Speed is measured from the end of the first step on: its own calls were compiled.
                if not (isinstance(one.record, _Speed) and one.step <= first):
                    self._queue_numbered(one, calls_per_step=self._steps.calls_per_step)
            self._note_window(self._rate.name(gained, time.monotonic_ns()))
            self._hurried = self._hurried or not was_named
            self._wake()

    def note_restore(self, next_step: int, calls: int) -> None:
        """The program resumes from a checkpoint: with its step, and with the calls of its strategy."""
        with self._changed:
            self._steps.note_restore(next_step, calls)
            self._tally.times.note_step(self._steps.done)

    def reduction(self, record: ReductionRecord) -> None:
        """A reduction with its raw arrays."""
        size = size_of(record)
        with self._changed:
            if not self._has_room_for(size):  # what is only held for its step would be waited for in vain
                self._number(self._steps.likely(self._total_steps))
            self._await_room(lambda: self._has_room_for(size))
            self._tally.count_reduction()
            self._steps.hold(record.step, record, time.monotonic_ns())
            self._reduction_bytes += size
            self._wake()

    def watched(self, one: WatchedCall) -> None:
        """A call that watches for NaN and infinities was sent; it is read when something else is sent."""
        self._non_finite.add(one)

    def step(self, record: StepRecord) -> None:
        """A step that was dispatched. The first is told at once."""
        with self._changed:
            self._hurried = self._hurried or self._steps.called is None
            self._steps.note_return(record.step)
            self._tally.times.note_step(self._steps.done)
            self._meter.call(record)
            self._note_window(self._rate.call(record))
            self._wake()

    def tracing(self, steps: range) -> None:
        """The trace of these has begun: from now on it is sent, or the shim misses it."""
        with self._changed:
            step = self._steps.expect(steps.start, self._total_steps)
            self._tally.note_trace(BegunTrace(steps.start, step))

    def traced(self, traced: TracedSteps) -> None:
        """Steps were traced; they are read on the thread that sends."""
        with self._changed:
            self._steps.hold(traced.steps.start, traced, time.monotonic_ns())
            self._wake()

    def tracing_is_busy(self) -> None:
        """The program traces itself, so that we can't."""
        with self._changed:
            self._meter.sample({"unknown": "busy"})

    def placed(self, kinds: Sequence[str]) -> None:
        """What JAX calls the devices of all replicas."""
        with self._changed:
            self._meter.place(kinds)

    def describe_examples(self, tokens: float | None, flops: float | None) -> None:
        """What an example holds, and takes by the model."""
        with self._changed:
            self._meter.describe(tokens, flops)

    def collective(self, name: str) -> None:
        """The collective that was left last."""
        self._last_collective = name

    def total_steps(self, total: int) -> None:
        """How many steps there will be."""
        if self._listener is not None:
            self._listener.total_told(total)
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
            self._number(self._steps.rest(self._total_steps))
            self._note_window(self._rate.rest())
            self._number(self._steps.rest(self._total_steps))
            if (mean := self._rate.mean()) is not None:
                self._present, self._is_still = mean, False
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _number(self, numbered: Iterable[Numbered[_Record]]) -> None:
        for one in numbered:
            self._queue_numbered(one, calls_per_step=1.0)

    def _queue_numbered(self, one: Numbered[_Record], *, calls_per_step: float) -> None:
        """Queues a record whose step is known now."""
        if isinstance(one.record, _Speed):
            self._add_figures(one.record.window.of_steps(calls_per_step), one.step, one.record.at_micros)
        elif isinstance(one.record, NonFinite):
            self._non_finite_numbered.append(Numbered(one.step, one.call, one.record))
        elif isinstance(one.record, TracedSteps):
            self._traced.append(Numbered(one.step, one.call, one.record))
        else:
            self._reductions.append(Numbered(one.step, one.call, one.record))

    def _number_non_finite(self, found: Sequence[NonFinite]) -> None:
        for one in found:
            step = self._steps.find(one.step)
            if step is None:
                self._steps.hold(one.step, one, time.monotonic_ns())
            else:
                self._non_finite_numbered.append(Numbered(step, one.step, one))

    def _has_room_for(self, size: int) -> bool:
        waiting = len(self._reductions) + self._steps.held
        fits = waiting < MAX_REDUCTIONS and self._reduction_bytes + size <= MAX_REDUCTION_BYTES
        return fits or not waiting

    def _await_room(self, has_room: Callable[[], bool]) -> None:
        """Holds the lock but while it waits. Without a sending thread there is nobody to tell, nor to wait for."""
        while not has_room() and self._thread.is_alive():
            self._hurried = self._dirty = True
            self._changed.notify_all()
            if not self._changed.wait_for(has_room, _LOOK_AGAIN_S):
                self._on_wait()

    def _note_window(self, window: Window | None) -> None:
        """Windows are cut where the program steps: this thread's delays do not show in them."""
        if window is None:
            return
        self._present, self._is_still, at = self._rate.current(), False, time.time_ns() // 1_000
        if self._steps.named is not None:
            self._add_figures(window, self._steps.named, at)
        else:  # it may still name steps, of which a call is a part or several
            self._steps.hold(self._steps.called or 0, _Speed(window, at), time.monotonic_ns())
        self._wake()

    def _add_figures(self, window: Window, step: int, at_micros: int) -> None:
        for name, value in self._meter.figures(window).items():
            self._add_point(Point(f"sys/{name}", step, at_micros, value))

    def _add_point(self, point: Point) -> None:
        self._tally.count_value()
        self._points.append(point)

    def _wake(self) -> None:
        if not self._dirty or self._hurried:
            self._dirty = True
            self._changed.notify_all()

    def _send_forever(self) -> None:
        while True:
            with self._changed:
                self._wait_for_work()
                self._changed.wait_for(lambda: self._closed or self._hurried, timeout=FLUSH_S)
                closed = self._closed
                wanted = self._dirty
            if wanted:
                self._flush()
            if closed:
                return

    def _wait_for_work(self) -> None:
        """Until there is something to send: what waited too long for its step, or that the program stands still."""
        while not (self._dirty or self._closed):
            moves = self._present is not None and not self._is_still
            self._changed.wait(_LOOK_AGAIN_S if self._steps.held or moves else None)
            now = time.monotonic_ns()
            self._dirty = self._dirty or self._steps.is_overdue(now)
            is_idle = not (self._dirty or self._closed)
            if is_idle and self._present is not None and not self._is_still and self._rate.stands_still(now):
                self._note_standstill(self._present)

    def _note_standstill(self, present: Window) -> None:
        """The rate as of now is 0, also in the charts; nobody else would tell it, as the program does nothing."""
        at, step = time.time_ns() // 1_000, self._steps.named
        for name in _RATES & self._meter.figures(present).keys():
            self._add_point(Point(f"sys/{name}", step if step is not None else self._steps.called or 0, at, 0.0))
        self._is_still = self._dirty = self._hurried = True

    def _flush(self) -> None:
        found = self._non_finite.take(wait=self._closed or self._flushes_done < self._flushes_wanted)
        with self._changed:
            self._number_non_finite(found)
            rest = self._steps.rest if self._closed else partial(self._steps.overdue, time.monotonic_ns())
            self._number(rest(self._total_steps))
            non_finite, self._non_finite_numbered = self._non_finite_numbered, []
            traced, self._traced = self._traced, []
            points, self._points = self._points, deque()
            reductions, self._reductions = self._reductions, deque()
            logged, summary = self._media.take()
            self._reduction_bytes -= sum(size_of(one.record) for one in reductions)
            self._dirty, self._hurried = self._non_finite.is_waiting, False
            flush = self._flushes_wanted
            self._changed.notify_all()
        self._send_profiles(traced)
        self._send_progress()
        for one in non_finite:
            self._non_finite.send(one)
        self._reduction_reports.send(reductions)
        self._media.send(logged, summary)
        send_points(self._channel, points)
        with self._changed:
            self._flushes_done = flush
            self._changed.notify_all()

    def _send_profiles(self, traced: Iterable[Numbered[TracedSteps]]) -> None:
        for one in traced:
            assert self._profiles is not None  # or nothing is traced
            sampled = self._profiles.send(one.record, one.step)
            with self._changed:
                self._meter.sample(sampled)

    def _send_progress(self) -> None:
        """How many steps are done, in the program's own count where it logs one."""
        with self._changed:
            present, is_still = self._present, self._is_still
            fields = self._meter.fields(present, is_still=is_still)
        figures = {} if present is None else present.figures
        self._channel.send(
            "progress",
            step=self._steps_done(),
            total_steps=self._total_steps,
            steps_per_s=0.0 if is_still else figures.get("steps_per_s"),
            examples_per_s=0.0 if is_still and "examples_per_s" in figures else figures.get("examples_per_s"),
            last_collective=self._last_collective,
            **fields,
        )

    def _steps_done(self) -> int:
        done = self._steps.done
        return done if self._total_steps is None else min(done, self._total_steps)
