"""What a program has logged, what it runs and what its time goes into, in memory that it shares with its shim.

A program that is killed takes along what its sending thread had not handed over yet. The shim knows what it got, and
reads here how much there was. So it does which step was dispatched last, also of one that holds its interpreter.

The program's main thread is in one phase at a time. It writes, the shim reads; a number that grows with each write
tells the reader whether it read in the middle of one.
"""

import mmap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from drumline.contracts.profiles import MAX_PROFILES
from drumline.contracts.spent import PROGRAM_PHASES, Spent

_COUNTER_BYTES = 8
_VALUES, _REDUCTIONS, _STEPS, _PROGRAM, _MEDIA, _TRACES = range(6)
_COUNTERS = 6
_MOST = 2**53 - 1
_PLACES = {phase: place for place, phase in enumerate(PROGRAM_PHASES)}
_COUNT = len(PROGRAM_PHASES)
_VERSION, _CURRENT, _STEP = range(3)
_SINCE = _COUNT
_TRIES = 100
"""A writer that was stopped, or killed, in the middle of a write leaves what is at most one phase wrong."""
_MOST_STEPS = 2**53 - 1


class BegunTrace(NamedTuple):
    """A call of `strategy.run` that is traced, and which step of the program it is likely to be."""

    call: int
    step: int


class Tally:
    """Counters that a fork inherits. The program can write whatever it likes here: it only says what it itself lost.

    Counting takes 0.15 us, since `run.log` does it for each value. It is no atomic step: count under a lock.
    """

    def __init__(self) -> None:
        # Anonymous, hence shared with forks.
        shared = mmap.mmap(-1, (_COUNTERS + 2 * MAX_PROFILES) * _COUNTER_BYTES)
        self._counts = memoryview(shared).cast("Q")
        self.times = PhaseTimes()
        """What its time goes into."""

    def count_value(self) -> None:
        """A value is logged from now on, sent or not."""
        self._counts[_VALUES] += 1

    def count_reduction(self) -> None:
        """As `count_value`."""
        self._counts[_REDUCTIONS] += 1

    def count_media(self) -> None:
        """As `count_value`, of a histogram, image, text or table."""
        self._counts[_MEDIA] += 1

    def note_trace(self, trace: BegunTrace) -> None:
        """It is being traced from now on; beyond `MAX_PROFILES` no more are noted, nor traced."""
        count = self._counts[_TRACES]
        if count < MAX_PROFILES:
            at = _COUNTERS + 2 * count
            self._counts[at], self._counts[at + 1] = trace
            self._counts[_TRACES] = count + 1

    @property
    def traces(self) -> list[BegunTrace]:
        """All that have begun, read or not."""
        ends = range(_COUNTERS, _COUNTERS + 2 * min(self._counts[_TRACES], MAX_PROFILES), 2)
        return [BegunTrace(min(self._counts[at], _MOST), min(self._counts[at + 1], _MOST)) for at in ends]

    def note_dispatch(self, step: int, program: int) -> None:
        """That call of `strategy.run` runs the program that was told as the `program`-th, from 1."""
        self._counts[_PROGRAM], self._counts[_STEPS] = program, step + 1

    @property
    def step(self) -> int | None:
        """The call that was dispatched last; None before the first."""
        return min(self._counts[_STEPS], _MOST) - 1 if self._counts[_STEPS] else None

    @property
    def program(self) -> int:
        """Which of the programs that were told it runs, from 1."""
        return self._counts[_PROGRAM]

    @property
    def values(self) -> int:
        """Values logged so far."""
        return self._counts[_VALUES]

    @property
    def media(self) -> int:
        """Histograms, images, texts and tables logged so far."""
        return self._counts[_MEDIA]

    @property
    def reductions(self) -> int:
        """Reductions recorded so far."""
        return self._counts[_REDUCTIONS]


def _boottime() -> float:
    """As `host.system` has it, in a fifth of the time: a step asks thrice."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class PhaseSample:
    """What a program's time went into until `at`, CLOCK_BOOTTIME in seconds."""

    at: float
    spent_s: dict[Spent, float]
    current: Spent
    since: float
    """When the current phase began, as far as that is known."""
    step: int | None
    """Steps done, in the program's own count."""


class PhaseTimes:
    """Seconds by phase, of the thread that makes it and forks the program; what others enter does not count."""

    def __init__(self, clock: Callable[[], float] = _boottime) -> None:
        self._now = clock
        self._seconds = memoryview(mmap.mmap(-1, 8 * (_COUNT + 1))).cast("d")
        self._words = memoryview(mmap.mmap(-1, 8 * 3)).cast("Q")
        self._seconds[_SINCE] = self._now()
        self._thread = threading.get_ident()  # of whom is forked it is the same

    @property
    def current(self) -> Spent:
        """The phase that the program is in."""
        return PROGRAM_PHASES[self._words[_CURRENT] % _COUNT]

    def enter(self, phase: Spent) -> None:
        """The program begins another phase; of the same one nothing changes. Takes about a microsecond."""
        if threading.get_ident() != self._thread:
            return
        words, seconds = self._words, self._seconds
        place, now = _PLACES[phase], self._now()
        words[_VERSION] += 1
        seconds[words[_CURRENT]] += now - seconds[_SINCE]
        seconds[_SINCE] = now
        words[_CURRENT] = place
        words[_VERSION] += 1

    def spent_s(self, phase: Spent) -> float:
        """Seconds in the phase until it was last left."""
        return self._seconds[_PLACES[phase]]

    @contextmanager
    def during(self, phase: Spent) -> Iterator[None]:
        """The phase, then again the one before."""
        before = self.current
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def reassign(self, phase: Spent, seconds: float) -> None:
        """So much of the present phase was `phase`; never more than it has lasted in all."""
        if threading.get_ident() != self._thread:
            return
        words, times = self._words, self._seconds
        now = self._now()
        words[_VERSION] += 1
        times[words[_CURRENT]] += now - times[_SINCE]
        moved = min(max(0.0, seconds), times[words[_CURRENT]])
        times[words[_CURRENT]] -= moved
        times[_PLACES[phase]] += moved
        times[_SINCE] = now
        words[_VERSION] += 1

    def note_step(self, done: int) -> None:
        """So many steps are done."""
        self._words[_STEP] = min(done, _MOST_STEPS) + 1

    def read(self) -> PhaseSample:
        """As of now. What the program wrote over it with is taken as it is, within bounds: it is only its own time."""
        for _ in range(_TRIES):
            version = self._words[_VERSION]
            current, step = self._words[_CURRENT] % _COUNT, min(self._words[_STEP], _MOST_STEPS)
            seconds = list(self._seconds)
            if version % 2 == 0 and version == self._words[_VERSION]:
                break
        now = self._now()
        since = min(max(seconds[_SINCE], 0.0), now)
        spent = dict(zip(PROGRAM_PHASES, seconds, strict=False))
        spent[PROGRAM_PHASES[current]] += now - since
        return PhaseSample(now, spent, PROGRAM_PHASES[current], since, step - 1 if step else None)
