"""How much a program has logged and what it runs, in memory that it shares with its shim.

A program that is killed takes along what its sending thread had not handed over yet. The shim knows what it got, and
reads here how much there was. So it does which step was dispatched last, also of one that holds its interpreter.
"""

import mmap

from drumline_worker.host.phase_times import PhaseTimes

_COUNTER_BYTES = 8
_VALUES, _REDUCTIONS, _STEPS, _PROGRAM, _MEDIA = range(5)
_MOST = 2**53 - 1


class Tally:
    """Counters that a fork inherits. The program can write whatever it likes here: it only says what it itself lost.

    Counting takes 0.15 us, since `run.log` does it for each value. It is no atomic step: count under a lock.
    """

    def __init__(self) -> None:
        shared = mmap.mmap(-1, 5 * _COUNTER_BYTES)  # anonymous, hence shared with forks
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
