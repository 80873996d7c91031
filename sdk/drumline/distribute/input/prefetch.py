"""Keeps the next steps ready while the devices work on the current one."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
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
#: Steps in a row that must be slow: one may have met a busy machine, and the first one opens files.
_SLOW_STEPS = 2


class Lookahead(Generic[T]):
    """Calls ``produce`` ahead of time, in order, on one background thread; at most ``depth`` results wait.

    ``produce`` returns None at the end. Its exceptions are raised by the ``next`` they belong to. It is called when
    asked, on the caller's thread, with depth 0 and until it takes longer than ``hand_over_s`` several times in a row.
    """

    def __init__(self, produce: Callable[[], T | None], depth: int, hand_over_s: float = _HAND_OVER_S) -> None:
        self._produce = produce
        self._depth = depth
        self._hand_over_s = hand_over_s
        self._slow = 0 if hand_over_s else _SLOW_STEPS
        self._reader: _Reader[T] | None = None

    def next(self) -> T | None:
        """The next result; None at the end."""
        if self._reader is not None:
            return self._reader.next()
        if not self._depth:
            return self._produce()
        if self._slow < _SLOW_STEPS:
            began = time.perf_counter()
            produced = self._produce()
            self._slow = self._slow + 1 if time.perf_counter() - began > self._hand_over_s else 0
            return produced
        self._reader = _Reader(self._produce, self._depth)
        weakref.finalize(self, self._reader.stop, 0.0).atexit = False
        return self._reader.next()

    def drain(self) -> list[T]:
        """Ends the reading ahead; gives the results that wait. An error among them is raised by a later ``next``."""
        if self._reader is None:
            return []
        self._reader.stop(patience_s=None)
        reader, self._reader = self._reader, None
        waiting = reader.waiting()
        failed = [error for _, error in waiting if error is not None]
        if failed:
            self._produce = _raising(failed[0])
        return [result for result, _ in waiting if result is not None]

    def discard(self) -> None:
        """Forgets the results that wait, and returns when ``produce`` no longer runs."""
        if self._reader is not None:
            self._reader.stop(patience_s=None)
            self._reader = None


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

    def waiting(self) -> list[tuple[T | None, BaseException | None]]:
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


def _raising(error: BaseException) -> Callable[[], Any]:
    def produce() -> Any:
        raise error

    return produce


_readers: weakref.WeakSet[_Reader[Any]] = weakref.WeakSet()


@atexit.register
def _stop_readers() -> None:
    for reader in list(_readers):
        reader.stop(_EXIT_PATIENCE_S)
