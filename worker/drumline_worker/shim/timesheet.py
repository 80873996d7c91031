"""Writes down what a member's time goes into: stretches of it, one after the other, each second in one of them."""

import math
from dataclasses import dataclass

from drumline.contracts.spent import Spent
from drumline_worker.host.phase_times import PhaseSample, PhaseTimes
from drumline_worker.host.rundir import StartOrder
from drumline_worker.shim.journal import Journal

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


@dataclass(frozen=True, slots=True)
class _Piece:
    end: float
    spent_s: dict[Spent, float]


class Timesheet:
    """Looks at the program's phases and at its own sleep. Times are CLOCK_BOOTTIME, in seconds."""

    def __init__(self, journal: Journal, order: StartOrder, times: PhaseTimes) -> None:
        self._journal = journal
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
            end_us = self._us(self._ended)
            self._journal.record("time", begin_us=begin_us, end_us=end_us, spent_us=spent_us, step=self._last.step)
        self._told += 1
        self._open, self._began = {}, self._ended

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
