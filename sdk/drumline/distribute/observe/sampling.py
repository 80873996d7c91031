"""How often the large arrays of all-reduces are recorded: as was asked for, or as seldom as what it costs demands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax

#: Until the cost is known, of the sampled calls every so many record large arrays too.
LARGE_EVERY = 100
#: Of the time of the calls between, what recording may take where the interval is chosen: half of one percent, since
#: what is sent, checked and stored afterwards is not in the measured time.
MOST_SHARE = 0.005
#: And not more often than this, as all of it is kept.
LEAST_CALLS = 100
LEAST_S = 10.0
MOST_CALLS = 1_000_000
#: Calls that are timed, without and with large arrays in turns, after one of each that isn't.
PAIRS = 3


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every how many calls large arrays are recorded.

    ``is_chosen``: by the engine, from ``extra_s``, which recording takes longer than a call without it (``plain_s``);
    both None where nothing was measured (yet).
    """

    every: int
    is_chosen: bool
    extra_s: float | None = None
    plain_s: float | None = None


class LargeSampling:
    """Which calls record large arrays. ``given``: the interval that was asked for; None has it chosen.

    The program that records some first is timed, a few of its calls, which wait for their devices and read what they
    recorded. ``agree``: the interval for all processes, from this one's.
    """

    def __init__(self, every: int, given: int | None, agree: Callable[[int], int] = lambda own: own) -> None:
        self._unit = every
        self._agree = agree
        self._is_given = given is not None
        self.told = Sampling(self._whole(every * LARGE_EVERY if given is None else given), given is None)
        #: Whose calls are timed now.
        self.program: object | None = None
        #: Does the call that is sent now record large arrays for its time's sake only?
        self.is_forced = False
        self._times: dict[bool, list[float]] = {False: [], True: []}

    def is_due(self, step: int) -> bool:
        """Whether this one records large arrays, if it is sampled at all."""
        return step % self.told.every == 0

    def note_program(self, program: object) -> None:
        """It records large arrays, and so both its variants are there soon."""
        if self.program is None and not self._is_given and self.told.extra_s is None:
            self.program = program

    def wait(self, outputs: object) -> None:
        """Until the devices are done with what a program put out, while one is timed."""
        if self.program is not None:
            jax.block_until_ready(outputs)

    @property
    def next_is_large(self) -> bool:
        """Whether the next call is to be timed with large arrays."""
        return len(self._times[True]) < len(self._times[False])

    def note_time(self, seconds: float, steps: int, *, is_large: bool) -> None:
        """A call took so long until its devices were done and what it recorded was read."""
        self._times[is_large].append(seconds)
        if len(self._times[True]) > PAIRS:
            plain, large = (min(self._times[kind][1:]) for kind in (False, True))
            self._choose(max(plain, 1e-9) / steps, max(0.0, large - plain))

    def _choose(self, plain_s: float, extra_s: float) -> None:
        least = max(LEAST_CALLS, LEAST_S / plain_s, extra_s / (MOST_SHARE * plain_s))
        every = self._agree(self._whole(min(MOST_CALLS, math.ceil(least))))
        self.told = Sampling(every, is_chosen=True, extra_s=extra_s, plain_s=plain_s)
        self.program = None

    def _whole(self, every: int) -> int:
        """Large arrays are recorded in calls only that are sampled."""
        return -(-every // self._unit) * self._unit
