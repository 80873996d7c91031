"""Functions called ahead on threads: ``map(..., num_parallel_calls=n)``. Results keep their order unless asked not to.

At most ``threads`` calls run, so many results wait, and a place is saved without those that were not given out yet.
Without order a place tells what was given out after it as well, for as long as somebody holds it: operations that
begin again within a batch or at a dataset go back to a place before it, and must come to the same elements.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import grain
import jax

from drumline.distribute.base.runtime import read_trace_settings, under_settings
from drumline.distribute.errors import InvalidTypeError, InvalidValueError
from drumline.distribute.input.streams import State

#: As ``num_parallel_calls``: as many threads as there are cores; as a buffer size: a small number.
AUTOTUNE = -1

#: More threads than this only wait for each other; a larger number is a mistake in units.
_MOST_THREADS = 256
_MOST_THREADS_BY_ITSELF = 16

#: Choices that a place tells; who goes back to one reads a batch again, a window, or one element.
_MOST_CHOICES = 65_536

#: Elements per thread that may be given out before an older one, where order does not matter: a place names each.
_FURTHEST_AHEAD = 16


def thread_count(num_parallel_calls: int | None) -> int:
    """The threads to use; 0 without ``num_parallel_calls``, for calls in the reading thread."""
    if num_parallel_calls is None:
        return 0
    if isinstance(num_parallel_calls, bool) or not isinstance(num_parallel_calls, int):
        raise InvalidTypeError(f"num_parallel_calls={num_parallel_calls!r}: give a number of threads, or AUTOTUNE")
    if num_parallel_calls == AUTOTUNE:
        return min(os.cpu_count() or 1, _MOST_THREADS_BY_ITSELF)
    if not 1 <= num_parallel_calls <= _MOST_THREADS:
        raise InvalidValueError(
            f"num_parallel_calls={num_parallel_calls}: use 1 to {_MOST_THREADS} threads, or AUTOTUNE"
        )
    return num_parallel_calls


def start_pool(owner: object, threads: int) -> ThreadPoolExecutor:
    """Threads that end when ``owner`` is gone; what they call must hold no reference to it."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="drumline-input")
    weakref.finalize(owner, pool.shutdown, wait=False, cancel_futures=True)
    return pool


def submit(pool: ThreadPoolExecutor, fn: Callable[..., Any], *args: Any) -> Future[Any]:
    """Calls ``fn`` on a thread of the pool, under this thread's settings of JAX."""
    return pool.submit(_call, read_trace_settings(jax.config), fn, args)


def _call(settings: tuple[Any, ...], fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with under_settings(settings):
        return fn(*args)


class Choices(list[int]):
    """What was chosen after a place. A list that can be referred to weakly."""


class ChoiceLog:
    """Tells places what an iterator without order chooses after them, and chooses so again from a restored one."""

    def __init__(self) -> None:
        self._held: list[weakref.ref[Choices]] = []
        self._due: deque[int] = deque()

    def restore(self, choices: Iterable[int]) -> None:
        """The next choices are these."""
        self._due = deque(choices)
        self._held.clear()

    def place(self) -> Choices:
        """A part of a place, which grows with the choices that follow."""
        made = Choices(self._due)
        # Here too, as an iterator without threads chooses nothing, and is asked for its place all the same.
        self._held = [*(each for each in self._held if each() is not None), weakref.ref(made)]
        return made

    def take_due(self) -> int | None:
        """The choice that was made the last time; None for a new one."""
        return self._due.popleft() if self._due else None

    def note(self, choice: int) -> None:
        """A new choice."""
        held = [(each, place) for each in self._held if (place := each()) is not None and len(place) < _MOST_CHOICES]
        for _, place in held:
            place.append(choice)
        self._held = [each for each, _ in held]


class ParallelMapped(grain.IterDataset[Any]):
    """``fn`` of each element, several at a time."""

    def __init__(
        self, parent: grain.IterDataset[Any], fn: Callable[[Any], Any], threads: int, *, ordered: bool
    ) -> None:
        super().__init__(parent)
        self._fn = fn
        self._threads = threads
        self._ordered = ordered

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _ParallelIterator(iter(self._parent), self._fn, self._threads, ordered=self._ordered)


class _Called:
    """One element's call, and the place before the element. ``future`` is None once its result was given out."""

    def __init__(self, before: State, future: Future[Any] | None) -> None:
        self.before = before
        self.future = future


class _ParallelIterator(grain.DatasetIterator[Any]):
    """Saves the place before the oldest result that waits, and which of the later ones were given out.

    A choice is the number of a call among those whose result was not given out, in the order of the elements.
    """

    def __init__(
        self, parent: grain.DatasetIterator[Any], fn: Callable[[Any], Any], threads: int, *, ordered: bool
    ) -> None:
        super().__init__(parent)
        self._source = parent
        self._fn = fn
        self._threads = threads
        self._ordered = ordered
        self._pool: ThreadPoolExecutor | None = None
        self._calls: list[_Called] = []
        self._choices = ChoiceLog()

    def __next__(self) -> Any:
        self._call_ahead()
        waiting = self._waiting()
        if not waiting:
            raise StopIteration
        chosen = waiting[0] if self._ordered else self._choose(waiting)
        assert chosen.future is not None
        result = chosen.future.result()
        chosen.future = None
        while self._calls and self._calls[0].future is None:
            del self._calls[0]
        return result

    def get_state(self) -> State:
        oldest = self._calls[0].before if self._calls else self._source.get_state()
        place = {"oldest": oldest, "given": [i for i, call in enumerate(self._calls) if call.future is None]}
        return place if self._ordered else {**place, "next": self._choices.place()}

    def set_state(self, state: State) -> None:
        self._source.set_state(state["oldest"])
        self._choices.restore(state.get("next", ()))
        self._calls = []
        for position in range(max(state["given"], default=-1) + 1):
            self._call_next(is_given=position in state["given"])

    def _call_ahead(self) -> None:
        try:
            while len(self._calls) < self._threads * _FURTHEST_AHEAD and len(self._waiting()) < self._threads:
                self._call_next()
        except StopIteration:
            return

    def _waiting(self) -> list[_Called]:
        return [call for call in self._calls if call.future is not None]

    def _choose(self, waiting: list[_Called]) -> _Called:
        due = self._choices.take_due()
        if due is not None and due < len(waiting):
            return waiting[due]
        chosen = _first_done(waiting)
        self._choices.note(waiting.index(chosen))
        return chosen

    def _call_next(self, *, is_given: bool = False) -> None:
        if self._pool is None:
            self._pool = start_pool(self, self._threads)
        before = self._source.get_state()
        element = next(self._source)
        self._calls.append(_Called(before, None if is_given else submit(self._pool, self._fn, element)))


def _first_done(waiting: list[_Called]) -> _Called:
    futures = [call.future for call in waiting if call.future is not None]
    done = wait(futures, return_when=FIRST_COMPLETED).done
    return next(call for call in waiting if call.future in done)
