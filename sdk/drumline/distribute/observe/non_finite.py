"""What a step that watches its all-reduces tells: the first NaN or infinity, of which variable and replica."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

COUNTS = 3
"""Numbers of each all-reduce: NaNs and infinities of the replica's part, and what is not finite in the result."""


@dataclass(frozen=True, slots=True)
class Watched:
    """An all-reduce that is watched: its variable, or where it stands."""

    name: str
    op: Literal["sum", "mean"]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NonFiniteReplica:
    """How many elements of a replica's part are NaN, and infinite."""

    replica: int
    nan_count: int
    inf_count: int


@dataclass(frozen=True, slots=True)
class NonFinite:
    """An all-reduce of ``step`` whose result is not finite.

    ``replicas``: those of this process that put NaN or infinities in. Where no replica of any process did, the sum of
    finite numbers was too large. ``result_count``: elements of the result that are not finite.
    """

    step: int
    name: str
    op: Literal["sum", "mean"]
    shape: tuple[int, ...]
    replicas: tuple[NonFiniteReplica, ...]
    result_count: int


@dataclass(frozen=True, slots=True)
class WatchedStep:
    """What a call of a watching program put out.

    ``numbers``: uint32 of each replica, with an axis of its steps where it does several, ending in 1 + 3 for each
    of ``watched``. Their first counts the looks of all calls so far (``counts_on``), or says whether there was one.
    """

    steps: range
    watched: tuple[Watched, ...]
    numbers: Any
    counts_on: bool
    first: int = 0
    """Where the first of the steps lies on the axis of several."""

    def is_ready(self) -> bool:
        """Whether reading it waits for nothing."""
        return bool(self.numbers.is_ready())

    def read(self) -> dict[int, np.ndarray[Any, np.dtype[np.uint32]]]:
        """By replica of this process, an array ``[steps, numbers]``; waits for the step."""
        found = {}
        for shard in self.numbers.addressable_shards:
            replica = shard.index[0].start or 0
            own = np.asarray(shard.data)[0]
            found[replica] = own[None] if own.ndim == 1 else own[self.first : self.first + len(self.steps)]
        return found

    def looks(self) -> int:
        """By the first numbers of all replicas: looks so far, or in this call."""
        return sum(int(own[:, 0].astype(np.int64).sum()) for own in self.read().values())

    def find(self) -> Iterator[NonFinite]:
        """What is not finite in it, step by step, in the order of the program."""
        read = self.read()
        for at, step in enumerate(self.steps):
            for position, one in enumerate(self.watched):
                yield from _judge(step, one, {r: own[at, 1 + COUNTS * position :][:COUNTS] for r, own in read.items()})


def _judge(step: int, one: Watched, counts: dict[int, Any]) -> Iterator[NonFinite]:
    replicas = tuple(NonFiniteReplica(r, int(c[0]), int(c[1])) for r, c in sorted(counts.items()) if c[0] or c[1])
    result = max((int(c[2]) for c in counts.values()), default=0)
    if replicas or result:
        yield NonFinite(step, one.name, one.op, one.shape, replicas, result)


@dataclass(frozen=True, slots=True)
class WatchedResult:
    """A small reduction outside of steps. ``value``: what was reduced, of ``replicas``."""

    step: int
    name: str
    op: Literal["sum", "mean"]
    value: Any
    result: Any
    replicas: tuple[int, ...]

    def is_ready(self) -> bool:
        """Whether reading it waits for nothing."""
        return not hasattr(self.result, "is_ready") or bool(self.result.is_ready())

    def find(self) -> Iterator[NonFinite]:
        """What is not finite in it; waits for the result."""
        result = np.asarray(self.result)
        count = result.size - int(np.isfinite(result).sum())
        if count:
            parts = getattr(self.value, "values", None) or (self.value,) * len(self.replicas)
            odd = tuple(_look_at(zip(self.replicas, parts, strict=True)))
            yield NonFinite(self.step, self.name, self.op, result.shape, odd, count)


def _look_at(parts: Iterable[tuple[int, Any]]) -> Iterator[NonFiniteReplica]:
    for replica, part in parts:
        own = np.asarray(part)
        nan, inf = int(np.isnan(own).sum()), int(np.isinf(own).sum())
        if nan or inf:
            yield NonFiniteReplica(replica, nan, inf)


@dataclass(frozen=True, slots=True)
class Reduced:
    """A sum that the host did in a step: what each replica put in, and what came out."""

    what: Watched
    parts: Sequence[Any]
    result: Any


class WatchedExchange:
    """Sums that the host of a lock-step program did at once, looked at on the device that they were added on."""

    def __init__(self, step: int, reduced: Sequence[Reduced]) -> None:
        self.step = step
        #: What is finite of what, in one: two threads read and replace it.
        self._state: tuple[Any, Sequence[Reduced]] = (_are_finite([one.result for one in reduced]), reduced)

    def is_ready(self) -> bool:
        """Whether reading it waits for nothing."""
        finite = self._state[0]
        return bool(finite.is_ready()) if hasattr(finite, "is_ready") else True

    def find(self) -> Iterator[NonFinite]:
        """What is not finite in it; waits for the results."""
        for one in self.let_go(frozenset()):
            result = np.asarray(one.result)
            count = result.size - int(np.isfinite(result).sum())
            parts = tuple(_look_at(enumerate(one.parts)))
            yield NonFinite(self.step, one.what.name, one.what.op, one.what.shape, parts, count)

    def let_go(self, known: Set[str]) -> Sequence[Reduced]:
        """Keeps only what is not finite and has another name than those ``known``: arrays of replicas are large."""
        finite, reduced = self._state
        odd = [one for one, is_finite in zip(reduced, np.asarray(finite), strict=True) if not is_finite]
        kept = [one for one in odd if one.what.name not in known]
        self._state = np.zeros(len(kept), bool), kept
        return kept


@jax.jit
def _are_finite(arrays: list[jax.Array]) -> jax.Array:
    return jnp.stack([jnp.isfinite(array).all() for array in arrays])


WatchedCall = WatchedStep | WatchedResult | WatchedExchange
"""What an observer is given to be read."""


class ExchangeWatch:
    """Watches the sums of a lock-step program. Of each name the first that is not finite is kept with its parts, and of
    others these are let go of when the next is sent and they are found to be finite.
    """

    def __init__(self) -> None:
        self._sent: deque[WatchedExchange] = deque()
        self._known: set[str] = set()

    def look(self, step: int, reduced: Sequence[Reduced]) -> WatchedExchange:
        """An exchange of this step was sent; for an observer."""
        while self._sent and self._sent[0].is_ready():
            self._known.update(one.what.name for one in self._sent.popleft().let_go(self._known))
        one = WatchedExchange(step, reduced)
        self._sent.append(one)
        return one


class NonFiniteWatch:
    """Keeps what watching steps put out until it is read, on another thread: once for all that came since.

    A program counts its looks, so that its newest call says whether any before had one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[WatchedCall] = deque()
        self._looks: dict[int, tuple[tuple[Watched, ...], int]] = {}

    def add(self, one: WatchedCall) -> None:
        """A call was sent, or something reduced. Only a few numbers of it are kept, and parts that are not finite."""
        with self._lock:
            self._waiting.append(one)

    @property
    def is_waiting(self) -> bool:
        """Whether something is still to be read."""
        return bool(self._waiting)

    def take(self, *, wait: bool = True) -> list[NonFinite]:
        """What was not finite since it was asked last, in what the devices have done; ``wait``: in all."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
            while waiting and not (wait or waiting[-1].is_ready()):
                self._waiting.appendleft(waiting.pop())
        by_program: dict[tuple[int, bool], list[WatchedStep]] = {}
        found: list[NonFinite] = []
        for one in waiting:
            if isinstance(one, (WatchedResult, WatchedExchange)):
                found += one.find()
            else:
                by_program.setdefault((id(one.watched), one.counts_on), []).append(one)
        found += [one for steps in by_program.values() for one in self._take_of_program(steps)]
        return sorted(found, key=lambda one: one.step)

    def _take_of_program(self, steps: list[WatchedStep]) -> Iterator[NonFinite]:
        key = id(steps[0].watched)
        if not steps[0].counts_on:
            for step in steps:
                yield from step.find() if step.looks() else ()
            return
        _, before = self._looks.get(key, (steps[0].watched, 0))
        newest = steps[-1].looks()
        self._looks[key] = (steps[0].watched, newest)  # kept, so that no other has its id
        for step in steps if newest != before else ():
            yield from step.find()
