"""Functions called ahead on threads: ``map(..., num_parallel_calls=n)``. Results keep their order unless asked not to.

At most ``threads`` calls run, so many results wait, and a place is saved without those that were not given out yet.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
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
    """Saves the place before the oldest result that waits, and which of the later ones were given out."""

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

    def __next__(self) -> Any:
        self._call_ahead()
        waiting = [call for call in self._calls if call.future is not None]
        if not waiting:
            raise StopIteration
        chosen = waiting[0] if self._ordered else _first_done(waiting)
        assert chosen.future is not None
        result = chosen.future.result()
        chosen.future = None
        while self._calls and self._calls[0].future is None:
            del self._calls[0]
        return result

    def get_state(self) -> State:
        oldest = self._calls[0].before if self._calls else self._source.get_state()
        return {"oldest": oldest, "given": [i for i, call in enumerate(self._calls) if call.future is None]}

    def set_state(self, state: State) -> None:
        self._source.set_state(state["oldest"])
        self._calls = []
        for position in range(max(state["given"], default=-1) + 1):
            self._call_next(is_given=position in state["given"])

    def _call_ahead(self) -> None:
        try:
            while len(self._calls) < self._threads * _FURTHEST_AHEAD and self._count_waiting() < self._threads:
                self._call_next()
        except StopIteration:
            return

    def _count_waiting(self) -> int:
        return sum(call.future is not None for call in self._calls)

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
