"""Members of a gang tell each other how far they are and what they run, past all collectives.

A member that runs another program than the others, or returns while they still step, leaves them waiting for ever. So
each tells its steps through the coordination service's key-value store, and all see for themselves who is the odd one.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
from jax._src import distributed  # JAX shows its client nowhere else

from drumline.contracts.worker_api import Rendezvous
from drumline.distribute.cluster.exchange import in_order
from drumline.distribute.errors import ProcessesDifferError
from drumline_worker.runner.devices import name_member

_TELL_S = 0.5
HEARD_S = 2 * _TELL_S
"""In which all of a small gang have heard what one has told."""
_TELL_S_A_MEMBER = 0.01
"""Each reads what all have told: in a gang of 256 every 2.5 s."""
_UNDECIDED_S = 2.5
"""For members that have not told yet, where they decide which of two programs is the odd one. One that is stuck before
the step never tells, and the member is to be named within 5 s."""
_KEPT = 64
"""Changes of program that are told: enough for members that are that many apart."""
_NAME_CHARS = 80
_PREFIX = "drumline/told/"


def gang_store() -> Any:
    """The key-value store of the gang that this process is in. Any: a class of JAX's extension module."""
    assert distributed.global_state.client is not None, "the gang has met"
    return distributed.global_state.client


@dataclass(frozen=True, slots=True)
class Told:
    """What a member told. `programs`: from which step on it ran which, as (step, digest, name); the newest 64."""

    steps: int = 0
    """Steps begun."""
    has_returned: bool = False
    programs: tuple[tuple[int, str, str], ...] = ()
    exchanges: int = 0
    """Of all members, come to by the main thread."""
    recent: tuple[str, ...] = ()
    """What the newest of them are about."""
    before_step: int | None = None
    """Exchanges before the newest step; None where its place among them is not known."""

    def program_at(self, step: int) -> tuple[str, str] | None:
        """Digest and name; None where it is not known (any more)."""
        if step >= self.steps:
            return None
        known = [(digest, name) for first, digest, name in self.programs if first <= step]
        return known[-1] if known else None


def find_difference(error: BaseException) -> ProcessesDifferError | None:
    """The error by which the engine named members that differ from the others; also one that another came of."""
    if not isinstance(error, Exception):  # the program means to exit, or was asked to
        return None
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, ProcessesDifferError) and cause.processes:
            return cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return None


def find_odd(told: Mapping[int, Told], name: Callable[[int], str], *, size: int = 0) -> str | None:
    """What is wrong with the gang, naming the member; None while all fits. `name` says who a rank is.

    With `size`, that of the gang, nobody is named as running another program while those of whom it is not known yet
    could make the other one the odd one.
    """
    return _find_returned(told, name) or _find_other_program(told, name, size) or _find_left_alone(told, name)


def _find_left_alone(told: Mapping[int, Told], name: Callable[[int], str]) -> str | None:
    """Who waits at an exchange, such as that of a new variable, which others have passed by."""
    furthest = max(told, key=lambda rank: told[rank].exchanges, default=None)
    if furthest is None:
        return None
    passed = [rank for rank, each in sorted(told.items()) if _has_passed(each, told[furthest])]
    if not passed:
        return None
    first = min(passed, key=lambda rank: _made_at_most(told[rank]))
    number = _made_at_most(told[first])
    came = [rank for rank, each in sorted(told.items()) if each.exchanges > number and rank not in passed]
    if len(came) == len(passed) < len(told) / 2:  # who has told neither decides which of them is odd
        return None
    recent = told[furthest].recent
    what = recent[max(0, number - told[furthest].exchanges + len(recent))]
    how = "returned" if told[first].has_returned else f"began step {told[first].steps - 1}"
    if len(came) > len(passed):
        said = f"{_upper(name(first))} {how} without {what}, at which {name(came[0])} waits for all members."
    elif (built := _find_built(told[came[0]], told[first], what)) is not None:
        step, running = built
        return (
            f"{_upper(name(came[0]))} builds a program for step {step}, in which {name(first)} runs the one that it "
            f"had: {_describe(running)}. All members must run the same steps in the same order."
        )
    else:
        said = f"{_upper(name(came[0]))} waits for all members at {what}, and {name(first)} {how} without it."
    return f"{said} All members must make the same variables, and call the strategy alike, in the same order."


def _find_built(came: Told, passed: Told, what: str) -> tuple[int, tuple[str, str]] | None:
    """The step that one has come to with a program to build, and what the other runs in it; None for other exchanges.

    It announces the exchange before it traces, which takes long for a large program or on a busy host.
    """
    running = passed.program_at(came.steps)
    return (came.steps, running) if what == f"step {came.steps}" and running is not None else None


def _has_passed(one: Told, furthest: Told) -> bool:
    """Whether it can't come any more to an exchange that the furthest has come to."""
    if one.has_returned:
        return one.exchanges < furthest.exchanges
    if one.before_step is None or (furthest.before_step is None and furthest.steps):
        return False
    if (
        one.steps == furthest.steps and furthest.before_step is not None
    ):  # the same step begins after the same exchanges
        return one.before_step < furthest.before_step
    return one.steps > furthest.steps and one.before_step < furthest.exchanges


def _made_at_most(one: Told) -> int:
    return one.exchanges if one.has_returned or one.before_step is None else one.before_step


def _find_returned(told: Mapping[int, Told], name: Callable[[int], str]) -> str | None:
    furthest = max((each.steps for each in told.values()), default=0)
    early = [rank for rank, each in sorted(told.items()) if each.has_returned and each.steps < furthest]
    if not early:
        return None
    rank = min(early, key=lambda rank: told[rank].steps)
    others = next(other for other, each in sorted(told.items()) if each.steps == furthest)
    return (
        f"{_upper(name(rank))} returned after {told[rank].steps} steps of the strategy, while {name(others)} began "
        f"step {furthest - 1}. All members must call strategy.run equally often."
    )


def _find_other_program(told: Mapping[int, Told], name: Callable[[int], str], size: int) -> str | None:
    for step in sorted({first for each in told.values() for first, _, _ in each.programs}):
        before = Counter(program[0] for each in told.values() if (program := each.program_at(step - 1)) is not None)
        ran = {rank: program for rank, each in sorted(told.items()) if (program := each.program_at(step)) is not None}
        now = Counter(digest for digest, _ in ran.values())
        if len(now) > 1:
            # Where as many do the one as the other, who continues as before is not the odd one.
            usual = max(now, key=lambda digest: (now[digest], before[digest]))
            lead = now[usual] - max(now[digest] for digest in now if digest != usual)
            if lead < size - len(ran):
                return None
            rank = next(rank for rank, (digest, _) in ran.items() if digest != usual)
            like = next(other for other, (digest, _) in ran.items() if digest == usual)
            return (
                f"{_upper(name(rank))} runs another program than {name(like)} in step {step}: {_describe(ran[rank])}, "
                f"there {_describe(ran[like])}. All members must run the same steps in the same order."
            )
    return None


def _describe(program: tuple[str, str]) -> str:
    digest, name = program
    return f"{name} ({digest})"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


class GangWatch:
    """Tells and hears on a thread of its own. `end` is called there, once, with what is wrong."""

    def __init__(self, store: Any, rendezvous: Rendezvous, end: Callable[[str], None]) -> None:
        self._store = store
        self._rendezvous = rendezvous
        self._end = end
        self._own = Told()
        self._now = threading.Event()
        self._has_found = False
        self._undecided_since: float | None = None
        self._thread = threading.Thread(target=self._watch, name="drumline-gang", daemon=True)
        self._pause_s = max(_TELL_S, _TELL_S_A_MEMBER * rendezvous.size)

    def start(self) -> None:
        """Watches from now on, until the gang has parted."""
        self._thread.start()

    def dispatched(self, steps: range, digest: str, name: str) -> None:
        """These steps begin, with the program of that digest; called by the thread that runs steps."""
        programs = self._own.programs
        if not programs or programs[-1][1] != digest:
            programs = (*programs[1 - _KEPT :], (steps.start, digest, name[:_NAME_CHARS]))
        is_in_order = threading.current_thread() is threading.main_thread()
        before = in_order.read()[0] if is_in_order else None
        self._own = Told(steps.stop, programs=programs, before_step=before)

    def returned(self) -> None:
        """The program has returned: it makes no more steps."""
        self._own = replace(self._own, has_returned=True)
        self._now.set()

    def describe(self, error: ProcessesDifferError) -> str:
        """What the engine says, naming the members by rank and host.

        Of other programs this knows more by what all told, so it is left the time to end the process with that.
        """
        if not error.have_failed:
            self._now.set()
            self._thread.join(2 * self._pause_s + HEARD_S)
            if self._has_found:
                self._thread.join()
        odd = ", ".join(name_member(self._rendezvous, rank) for rank in error.processes)
        return f"{_upper(odd)}: {error}"

    def _watch(self) -> None:
        try:
            while (odd := self._look()) is None:
                self._now.wait(self._pause_s)
                self._now.clear()
        except jax.errors.JaxRuntimeError:
            return  # the gang has parted, or its service is gone, which JAX sees to
        self._has_found = True
        self._end(odd)

    def _look(self) -> str | None:
        exchanges, recent = in_order.read()  # first: what is told of them was so at these steps, or before
        own = replace(self._own, exchanges=exchanges, recent=tuple(what[:_NAME_CHARS] for what in recent))
        text = json.dumps([getattr(own, each.name) for each in fields(own)])
        self._store.key_value_set(f"{_PREFIX}{self._rendezvous.rank}", text, allow_overwrite=True)
        told = {}
        for key, value in self._store.key_value_dir_get(_PREFIX):
            steps, has_returned, programs, count, recent, before = json.loads(value)
            programs = tuple(map(tuple, programs))
            told[int(key.rpartition("/")[2])] = Told(steps, has_returned, programs, count, tuple(recent), before)
        return self._find_odd(told)

    def _find_odd(self, told: Mapping[int, Told]) -> str | None:
        def name(rank: int) -> str:
            return name_member(self._rendezvous, rank)

        odd, now = find_odd(told, name), time.monotonic()
        if odd is None:
            self._undecided_since = None
            return None
        if self._undecided_since is None:
            self._undecided_since = now
        return odd if now - self._undecided_since >= _UNDECIDED_S else find_odd(told, name, size=self._rendezvous.size)
