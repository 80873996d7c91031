"""Keeps the next steps ready while the devices work on the current one."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: How long the end of the process waits for a step that is being read, in seconds. One that never comes (a stream
#: that went silent) must not keep the process alive, one that is being placed must not meet a half-closed JAX.
_EXIT_PATIENCE_S = 1.0
#: What handing a step over from another thread costs at worst, in seconds: the lock, the wake-up, and the interpreter
#: that both want. Reading ahead pays only where making the step takes longer.
_HAND_OVER_S = 1e-3
#: Steps whose mean cost decides: a source that refills a buffer is slow once in many steps.
_JUDGED_STEPS = 128


class Lookahead(Generic[T]):
    """Calls ``produce`` ahead of time, in order, on one background thread; at most ``depth`` results wait.

    ``produce`` returns None at the end. Its exceptions are raised by the ``next`` they belong to. It is called when
    asked, on the caller's thread, with depth 0 and until its calls take longer than ``hand_over_s`` on average.
    ``clock`` tells the seconds that they take.
    """

    def __init__(
        self,
        produce: Callable[[], T | None],
        depth: int,
        hand_over_s: float = _HAND_OVER_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._produce = produce
        self._depth = depth
        self._cost = _Cost(hand_over_s)
        self._clock = clock
        self._reader: _Reader[T] | None = None

    def next(self) -> T | None:
        """The next result; None at the end."""
        if self._reader is not None:
            return self._reader.next()
        if not self._depth:
            return self._produce()
        if self._cost.is_high:
            return self._start().next()
        began = self._clock()
        produced = self._produce()
        self._cost.add(self._clock() - began)
        if self._cost.is_high and produced is not None:
            self._start()
        return produced

    def _start(self) -> _Reader[T]:
        self._reader = reader = _Reader(self._produce, self._depth)
        weakref.finalize(self, reader.stop, 0.0).atexit = False
        return reader

    def drain(self) -> tuple[list[T], BaseException | None]:
        """Ends the reading ahead; gives the results that wait, and the error that comes after them."""
        if self._reader is None:
            return [], None
        self._reader.stop(patience_s=None)
        reader, self._reader = self._reader, None
        waiting = reader.take_waiting()
        error = next((error for _, error in waiting if error is not None), None)
        return [result for result, _ in waiting if result is not None], error

    def discard(self) -> None:
        """Forgets the results that wait, and returns when ``produce`` no longer runs."""
        if self._reader is not None:
            self._reader.stop(patience_s=None)
            self._reader = None


class _Cost:
    """Whether steps take longer than ``limit_s`` on average: the last ones, without the first, which opens files.

    The slowest counts as the second slowest does: one alone may have met a busy machine.
    """

    def __init__(self, limit_s: float) -> None:
        self.is_high = not limit_s
        self._limit_s = limit_s
        self._seconds: deque[float] = deque(maxlen=_JUDGED_STEPS)
        self._total = 0.0
        self._is_first = True

    def add(self, seconds: float) -> None:
        """One more step took so long."""
        if self._is_first:
            self._is_first = False
            return
        if len(self._seconds) == _JUDGED_STEPS:
            self._total -= self._seconds[0]
        self._seconds.append(seconds)
        self._total += seconds
        count = len(self._seconds)
        if count > 1 and self._total > self._limit_s * count:
            *_, second, slowest = sorted(self._seconds)
            self.is_high = self._total - slowest + second > self._limit_s * count


class _Reader(Generic[T]):
    """The thread, and the results it has ready. A permit allows it one more result."""

    def __init__(self, produce: Callable[[], T | None], depth: int) -> None:
        self._results: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
        self._permits = threading.Semaphore(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(produce,), name="drumline-input", daemon=True)
        _readers.add(self)
        self._thread.start()

    def next(self) -> T | None:
        self._permits.release()
        result, error = self._results.get()
        if error is not None:
            raise error
        return result

    def take_waiting(self) -> list[tuple[T | None, BaseException | None]]:
        """What a stopped reader had ready."""
        found = []
        while not self._results.empty():
            found.append(self._results.get())
        return found

    def stop(self, patience_s: float | None) -> None:
        """Ends the thread after the result it works on; waits so long for that (None: as long as it takes)."""
        self._stopped.set()
        self._permits.release()
        if threading.current_thread() is not self._thread:
            self._thread.join(patience_s)

    def _run(self, produce: Callable[[], T | None]) -> None:
        while True:
            self._permits.acquire()
            if self._stopped.is_set():
                return
            try:
                self._results.put((produce(), None))
            except BaseException as error:  # noqa: BLE001 - handed to the thread that asks for the step
                self._results.put((None, error))


_readers: weakref.WeakSet[_Reader[Any]] = weakref.WeakSet()


@atexit.register
def _stop_readers() -> None:
    for reader in list(_readers):
        reader.stop(_EXIT_PATIENCE_S)
