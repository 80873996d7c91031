"""Tells by the program's own count which step a call of `strategy.run` belongs to, and what was recorded with it.

The engine counts calls. A program names its steps, with `run.log` and `run.checkpoint`, when they are done: what was
recorded since it last named one is held until it names the next. See "step" in docs/glossary.md for the rule. Pure.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

Record = TypeVar("Record")

HOLD_NS = 10_000_000_000
"""A record waits so long for its step to be named: what a program records is to be seen while it runs."""


class Numbered(NamedTuple, Generic[Record]):
    """A record with the program's step and the call of `strategy.run` (from 0) that it belongs to."""

    step: int
    call: int
    record: Record


class _Held(NamedTuple, Generic[Record]):
    call: int
    held_at: int
    record: Record


class _Named(NamedTuple):
    """Calls between two names, and the steps then."""

    first_call: int
    end_call: int
    before: int
    step: int


KEPT_NAMES = 20_000
"""So far back it is known which step a call belongs to: some seconds of the fastest programs."""


class StepNumbers(Generic[Record]):
    """The program's steps, and records that wait for theirs to be named. Times are `time.monotonic_ns()`."""

    def __init__(self) -> None:
        self._held: deque[_Held[Record]] = deque()
        self._last = -1
        """The greatest step named; -1 before any, or the one before `next_step` of a restored state."""
        self._calls_then = 0
        """Calls that had returned when it was named."""
        self._calls = 0
        self._rhythm = (1, 1)
        """Steps and calls between the last two names: what comes next is expected to have the same."""
        self._named = False
        self._names: deque[_Named] = deque(maxlen=KEPT_NAMES)

    @property
    def named(self) -> int | None:
        """The greatest step that the program named; None before it named one."""
        return self._last if self._named else None

    @property
    def next(self) -> int:
        """The step after the greatest that was named; before any, the one that the program begins with."""
        return self._last + 1

    @property
    def done(self) -> int:
        """How many steps are done, counted from 0; calls stand for steps until the program names one."""
        return self._last + 1 + (0 if self._named else self._calls - self._calls_then)

    @property
    def likely_done(self) -> int:
        """`done`, with the calls since the last name taken for as many steps as they are likely to be."""
        if not self._named:
            return self.done
        gained, calls = self._rhythm
        return self._last + 1 + max(0, self._calls - self._calls_then) * gained // calls

    @property
    def called(self) -> int | None:
        """The call that returned last; None before the first."""
        return self._calls - 1 if self._calls else None

    def note_restore(self, next_step: int, calls: int) -> None:
        """The program resumes from a checkpoint that was saved after so many calls."""
        self._last, self._calls_then, self._calls = next_step - 1, calls, calls

    def note_return(self, call: int) -> None:
        """A call of `strategy.run` is over."""
        self._calls = call + 1

    def hold(self, call: int, record: Record, now: int) -> None:
        """Keeps a record of a call until its step is known."""
        self._held.append(_Held(call, now, record))

    def name(self, step: int) -> tuple[int, list[Numbered[Record]]]:
        """The program is done with a step: by how many that is further, and what was held, numbered."""
        numbered = [Numbered(self._interpolate(held.call, step), held.call, held.record) for held in self._held]
        self._held.clear()
        gained, calls = step - self._last, self._calls - self._calls_then
        if calls > 0:
            self._names.append(_Named(self._calls_then, self._calls, self._last, step))
        if gained > 0:
            if calls > 0:
                self._rhythm = (gained, calls)
            self._last = step
        self._calls_then, self._named = self._calls, True
        return max(0, gained), numbered

    def find(self, call: int) -> int | None:
        """The step of a call that returned before; None where the program has not named it yet."""
        if call >= self._calls_then:
            return None
        for named in reversed(self._names):
            if named.first_call <= call:
                return _spread(call, named)
        return self._last if self._last >= 0 else 0

    def is_overdue(self, now: int) -> bool:
        """Whether something was held too long."""
        return bool(self._held) and now - self._held[0].held_at >= HOLD_NS

    def overdue(self, now: int, total: int | None) -> Iterator[Numbered[Record]]:
        """What was held too long, numbered as is likely; `total` is how many steps there will be, if that is known."""
        while self.is_overdue(now):
            yield self._expected(total)

    def likely(self, total: int | None) -> Iterator[Numbered[Record]]:
        """All that is held, numbered as is likely."""
        while self._held:
            yield self._expected(total)

    def rest(self, total: int | None) -> Iterator[Numbered[Record]]:
        """What is held at the end of the program: it belongs to the step named last."""
        while self._held:
            if not self._named:
                yield self._expected(total)
            else:
                held = self._held.popleft()
                yield Numbered(self._last, held.call, held.record)

    @property
    def held(self) -> int:
        """How many records wait for their step."""
        return len(self._held)

    @property
    def calls_per_step(self) -> float:
        """Between the last two steps that were named."""
        steps, calls = self._rhythm
        return calls / steps

    def expect(self, call: int, total: int | None) -> int:
        """The step that a call is likely to be of, which may be still to come."""
        step = self._likely(call)
        return step if total is None else min(step, max(0, total - 1))

    def _expected(self, total: int | None) -> Numbered[Record]:
        held = self._held.popleft()
        return Numbered(self.expect(held.call, total), held.call, held.record)

    def _interpolate(self, call: int, step: int) -> int:
        """The step of a call after the last name, now that `step` is named."""
        return _spread(call, _Named(self._calls_then, self._calls, self._last, step))

    def _likely(self, call: int) -> int:
        gained, calls = self._rhythm
        place = call - self._calls_then + 1
        if place <= 0:
            return max(0, self._last)
        if not self._named:
            return self._last + place
        return self._last + (gained if calls < gained else min(gained, -(-place * gained // calls)))


def _spread(call: int, named: _Named) -> int:
    """Calls are spread evenly over the steps that they are of."""
    gained, calls, place = named.step - named.before, named.end_call - named.first_call, call - named.first_call + 1
    if gained <= 0 or calls < gained:
        return named.step
    if place <= 0:  # recorded after the last name, before another call
        return max(0, named.before)
    return named.before - (-place * gained // calls)
