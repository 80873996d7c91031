"""What the members of a gang, or the copies of one member, are compared by beside the program.

Arrivals: when this member comes to the collectives of sampled steps, and when its devices are done with them. All
members leave a collective at nearly the same moment. So what each measures from there on its own clock can be compared
with what the others measured, and no clock of one host is ever compared with that of another.

Divergence: copies that must be equal are compared every so many steps (`record.divergence_every`).
"""

import queue
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import drumline.distribute as dist
from drumline.contracts.arrivals import MAX_ARRIVAL_POINTS, MAX_ARRIVAL_SAMPLES
from drumline.contracts.worker_api import Claimed, Rendezvous
from drumline.distribute.cluster.exchange import ExchangeWait, waits
from drumline.distribute.observe.divergence import CopyChecksums, CopyKind, OddCopy, checksum_copies
from drumline_worker.runner.channel import Channel
from drumline_worker.runner.devices import name_member
from drumline_worker.runner.reports import UNREADABLE

Span = tuple[int, int]
"""From, until; `time.monotonic_ns()`."""
Fields = dict[str, Any]  # Any: JSON on its way to the shim, which validates it
SAMPLE_S = 0.2
"""Between two samples at least: what one costs is then less than a thousandth."""
_TELL_S = 2.0
_TELL_S_A_MEMBER = 0.02
"""The server reads what all have told: of a gang of 256 every 5 s."""
_FIRST_CALLS = 3
"""Not sampled: programs are compiled, and caches filled."""
_BEHIND = 2 * MAX_ARRIVAL_POINTS
"""Outputs that wait to be waited for; more say that this thread comes late, and so would its times."""
_MOST_EVERY = 2**20
_PERIODS = 5
_CLOSE_S = 1.0
_WAITING = 4
"""Checks that wait to be read; the step waits where devices are further behind."""
_MOST_NAMED = 20
"""Copies that are named; after so many the run is known to have diverged."""
_FINISH_S = 30.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A program with a collective went out at `at`; `began_at`: when `strategy.run` was called for it."""

    at: int
    began_at: int


@dataclass(slots=True)
class Sample:
    """From the end of one call's program to the end of the next one's. `done`: at its begin, then of each program."""

    call: int = 0
    sent: list[Sent] = field(default_factory=list)
    inputs: list[Span] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    is_lost: bool = False

    @property
    def seconds(self) -> float:
        """How long the step took."""
        return (self.done[-1] - self.done[0]) / 1e9

    def fields(self, exchanged: Sequence[ExchangeWait]) -> Fields:
        """As `drumline.contracts.arrivals.ArrivalSample`."""
        points = [
            _point(one, (self.done[i], self.done[i + 1]), self.inputs, exchanged) for i, one in enumerate(self.sent)
        ]
        return {"call": self.call, "points": points}


def _point(sent: Sent, period: Span, inputs: Sequence[Span], exchanged: Sequence[ExchangeWait]) -> Fields:
    """Where the time between the ends of two collectives went.

    To wait for the others until all have their next batch is to wait, though the collective comes after it.
    """
    before, done = period
    arrived = max(before, sent.at)
    waited = _clip(inputs, before, arrived)
    called = _clip([(sent.began_at, sent.at)], before, arrived)
    everywhere = [(one.began_at, one.ended_at) for one in exchanged]
    here = _clip([(one.began_at, one.ended_at) for one in exchanged if one.is_on_main_thread], before, arrived)
    for_batch = _common(waited, everywhere)
    in_call = _common(called, here)
    elsewhere = _total(here) - _common(waited, here) - in_call
    dispatch = _total(called) - _common(called, waited)
    own_code = arrived - before - _total(waited) - dispatch
    return {
        "input_us": _micros(_total(waited) - for_batch),
        "own_code_us": _micros(own_code - elsewhere),
        "dispatch_us": _micros(dispatch - in_call),
        "rest_us": _micros(done - arrived + for_batch + in_call + max(0, elsewhere)),
    }


def _clip(spans: Iterable[Span], begin: int, end: int) -> list[Span]:
    return [(max(begin, first), min(end, last)) for first, last in spans if first < end and last > begin]


def _total(spans: Iterable[Span]) -> int:
    return sum(last - first for first, last in spans)


def _common(some: Sequence[Span], others: Sequence[Span]) -> int:
    return sum(_total(_clip(others, *span)) for span in some)


def _micros(nanoseconds: int) -> int:
    return max(0, nanoseconds) // 1_000


class Arrivals:
    """Follows the calls of one member. `tell` gets samples as fields, on the thread that waits for the devices.

    Every 2**n-th call is sampled, so that members that step equally fast sample the same ones, or one of them each
    second one of the other's. The program's thread only notes times and hands over outputs: it never waits.
    """

    def __init__(self, tell: Callable[[list[Fields]], None], members: int = 2, sample_s: float = SAMPLE_S) -> None:
        self._tell = tell
        self._tell_s = max(_TELL_S, _TELL_S_A_MEMBER * members)
        self._sample_s = sample_s
        self._every = 1
        self._calls = 0
        self._open: Sample | None = None
        self._began_at = 0
        self._input_since = 0
        self._outputs: queue.SimpleQueue[tuple[Sample, Any, bool] | None] = queue.SimpleQueue()
        self._periods: deque[float] = deque(maxlen=_PERIODS)
        self._untold: list[Fields] = []
        self._told_at = time.monotonic()
        self._thread = threading.Thread(target=self._wait_forever, name="drumline-arrivals", daemon=True)
        self._thread.start()

    def step_began(self) -> None:
        """`strategy.run` was called."""
        if self._open is not None:
            self._began_at = time.monotonic_ns()

    def input_awaited(self, begins: bool) -> None:
        """The program begins to wait for input, or has it."""
        if self._open is None:
            return
        now = time.monotonic_ns()
        if begins:
            self._input_since = now
        elif self._input_since:
            self._open.inputs.append((self._input_since, now))
            self._input_since = 0

    def program_sent(self, output: Any, sent_at: int, steps: range | None, is_new: bool) -> None:
        """As `drumline.distribute.observe.SentObserver`. Any: an array of JAX."""
        sample = self._open
        if sample is not None:
            if is_new or len(sample.sent) == MAX_ARRIVAL_POINTS:
                self._open = None  # compiling is nobody's lateness
            else:
                sample.sent.append(Sent(sent_at, sent_at if steps is None else self._began_at or sent_at))
                sample.call = sample.call if steps is None else steps.start
                self._outputs.put((sample, output, steps is not None))
        if steps is None:
            return
        self._calls += 1
        self._open, self._input_since, self._began_at = None, 0, 0
        is_due = self._calls >= _FIRST_CALLS and (self._calls + 1) % self._every == 0
        if is_due and self._outputs.qsize() < _BEHIND:
            self._open = Sample()
            self._outputs.put((self._open, output, False))

    def close(self) -> None:
        """Tells what is left; of devices that never become ready it does not wait long."""
        self._outputs.put(None)
        self._thread.join(_CLOSE_S)

    def _wait_forever(self) -> None:
        while True:
            try:
                item = self._outputs.get(timeout=self._due_s())
            except queue.Empty:
                self._tell_all()
                continue
            if item is None:
                self._tell_all()
                return
            sample, output, is_last = item
            try:
                output.block_until_ready()
            except UNREADABLE:  # taken by a later program, or it failed, which the program itself tells
                sample.is_lost = True
            sample.done.append(time.monotonic_ns())
            del item, output
            if is_last and not sample.is_lost:
                self._keep(sample)

    def _due_s(self) -> float | None:
        """Until what was sampled is told; None where there is nothing."""
        return max(0.0, self._told_at + self._tell_s - time.monotonic()) if self._untold else None

    def _keep(self, sample: Sample) -> None:
        self._periods.append(sample.seconds)
        self._every = _every(self._sample_s, statistics.median(self._periods))
        self._untold.append(sample.fields(waits.read()))
        if len(self._untold) >= MAX_ARRIVAL_SAMPLES or not self._due_s():
            self._tell_all()

    def _tell_all(self) -> None:
        samples, self._untold = self._untold, []
        self._told_at = time.monotonic()
        if samples:
            self._tell(samples[-MAX_ARRIVAL_SAMPLES:])


def open_arrivals(claimed: Claimed, channel: Channel) -> Arrivals | None:
    """What measures it in a gang, for a server that takes it; None for others."""
    size = claimed.rendezvous.size
    if size == 1 or not claimed.takes_arrivals:
        return None
    return Arrivals(lambda samples: channel.send("arrivals", samples=samples), size)


def _every(sample_s: float, step_s: float) -> int:
    """The smallest power of two of steps that last so long."""
    every = 1
    while every < _MOST_EVERY and every * step_s < sample_s:
        every *= 2
    return every


class DivergedError(Exception):
    """A copy of a variable or of an argument differs from the others, and the run is to stop for it."""


class DivergenceCheck:
    """Steps begin checks, a thread of its own reads them and names what is odd.

    The members of a gang tell each other their checksums, on that thread, so that each knows of all replicas.
    """

    def __init__(
        self, strategy: dist.Strategy, rendezvous: Rendezvous, every: int, ids: Mapping[int, str], *, stops: bool
    ) -> None:
        self._strategy = strategy
        self._rendezvous = rendezvous
        self._exchange = None if strategy.exchange is None else strategy.exchange.branch("copies")
        self._every = every
        self._ids = ids
        self._stops = stops
        self._begun: queue.Queue[tuple[int, CopyChecksums]] = queue.Queue(_WAITING)
        self._equal_until: dict[CopyKind, int] = {}
        self._named: set[tuple[CopyKind, str, int]] = set()
        self._error: DivergedError | None = None
        threading.Thread(target=self._read_forever, name="drumline-copies", daemon=True).start()

    def step_ended(self, step: int) -> None:
        """Call `step` of `strategy.run`, from 0, has written its variables: begins a check if one is due."""
        if (step + 1) % self._every == 0 and (sums := checksum_copies(self._strategy)) is not None:
            self._begun.put((step, sums))

    def wants_arguments(self, steps: range) -> bool:
        """Whether a check of what these steps are given is due: not of the first ones, as a program compares that."""
        return steps.start > 0 and (steps[-1] // self._every) > (steps.start - 1) // self._every

    def arguments_taken(self, steps: range, sums: CopyChecksums) -> None:
        """What these steps are given, which steps before them left."""
        self._begun.put((steps.start - 1, sums))

    def raise_if_stopping(self) -> None:
        """Raises DivergedError once a copy was found to differ and the run is to stop for it."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Waits until all checks are read. Raises as `raise_if_stopping`."""
        done = threading.Thread(target=self._begun.join, daemon=True)
        done.start()
        done.join(_FINISH_S)
        self.raise_if_stopping()

    def _read_forever(self) -> None:
        while True:
            step, sums = self._begun.get()
            try:
                self._judge(step, sums.kind, self._compare(step, sums))
            except Exception as error:  # noqa: BLE001 - a device that failed fails the step too, which tells it
                sys.stderr.write(f"drumline: the copies of step {step} could not be compared: {error}\n")
            finally:
                self._begun.task_done()

    def _compare(self, step: int, sums: CopyChecksums) -> list[OddCopy]:
        if self._exchange is None:
            return sums.odd_copies()
        told = self._exchange.tell(f"the copies of each {sums.kind} after step {step}", list(sums.read().items()))
        return sums.find_odd({replica: tuple(values) for each in told for replica, values in each})

    def _judge(self, step: int, kind: CopyKind, odd: list[OddCopy]) -> None:
        new = [copy for copy in odd if (kind, copy.name, copy.replica) not in self._named]
        for copy in new:
            if len(self._named) < _MOST_NAMED:
                self._named.add((kind, copy.name, copy.replica))
                message = self._describe(step, kind, copy)
                if self._rendezvous.rank == 0:  # all of a gang find the same
                    sys.stderr.write(f"drumline: {message}\n")
                if self._stops:
                    self._error = self._error or DivergedError(message)
        if not odd:
            self._equal_until[kind] = step

    def _describe(self, step: int, kind: CopyKind, copy: OddCopy) -> str:
        until = self._equal_until.get(kind)
        before = "never seen equal" if until is None else f"equal after step {until}"
        what = f"{'argument ' if kind == 'argument' else ''}{copy.name!r}"
        device = self._ids.get(copy.device.id, str(copy.device))
        member = "" if self._exchange is None else f" ({name_member(self._rendezvous, copy.device.process_index)})"
        return (
            f"replica {copy.replica} on {device}{member} has another value of {what} than most replicas, "
            f"first seen after step {step} ({before})"
        )


def open_check(strategy: dist.Strategy, claimed: Claimed, ids: Mapping[int, str]) -> DivergenceCheck | None:
    """The check that the job asks for; None where it asks for none."""
    every = claimed.record.divergence_every
    if every is None:
        return None
    return DivergenceCheck(strategy, claimed.rendezvous, every, ids, stops=claimed.record.on_divergence == "stop")
