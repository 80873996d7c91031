"""Traces one program per replica so that they can tell each other shapes on the way.

Each replica is traced in a thread of its own, one at a time, replica 0 first; it runs until it ends or comes to an
exchange, then the next one resumes. Without exchanges this is a plain loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import jax

from drumline.distribute.base.runtime import read_trace_settings, under_settings
from drumline.distribute.contexts import context
from drumline.distribute.errors import CollectiveError

_T = TypeVar("_T")


class _Cancelled(BaseException):
    """Ends a thread whose replica will not be traced further."""


class _Tracer(threading.Thread, Generic[_T]):
    """One replica's trace. ``arrived`` is what it waits with at an exchange."""

    def __init__(self, body: Callable[[], _T], replica: int) -> None:
        super().__init__(name=f"trace-replica-{replica}", daemon=True)
        self._body = body
        self._may_run = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._settings = (context.current_entry(), read_trace_settings(jax.config))
        self.arrived: tuple[str, Any] | None = None
        self.answer: Any = None
        self.failure: BaseException | None = None
        self.result: _T | None = None
        self.is_done = False

    def run(self) -> None:
        self._may_run.acquire()
        entry, settings = self._settings
        try:
            with under_settings(settings), context.enter_if(entry):
                self._check_cancelled()
                self.result = self._body()
        except BaseException as error:  # noqa: BLE001  # handed to the thread that asked for the trace
            self.failure = error
        self.is_done, self.arrived = True, None
        self._stopped.release()

    def resume(self) -> None:
        """Lets the replica run to its next exchange or its end."""
        self._may_run.release()
        self._stopped.acquire()

    def wait_at(self, name: str, payload: Any) -> Any:
        """Called by the replica: stops here until every replica has come."""
        self.arrived = (name, payload)
        self._stopped.release()
        self._may_run.acquire()
        self._check_cancelled()
        self.arrived = None
        return self.answer

    def _check_cancelled(self) -> None:
        if isinstance(self.answer, _Cancelled):
            raise self.answer


class ReplicaTraces(Generic[_T]):
    """Traces ``replicas``, each for itself and those that share its trace. Their StepTraces call ``exchange``."""

    def __init__(self, trace_one: Callable[[int], _T], replicas: Sequence[int]) -> None:
        self._replicas = replicas
        self._tracers = [_Tracer(partial(trace_one, index), replica) for index, replica in enumerate(replicas)]

    def run(self) -> list[_T]:
        """All results; raises the first replica's error, or CollectiveError when replicas exchange differently."""
        for tracer in self._tracers:
            tracer.start()
        try:
            while True:
                for tracer in self._tracers:
                    tracer.resume()
                    if tracer.failure is not None:
                        raise tracer.failure
                if all(tracer.is_done for tracer in self._tracers):
                    return [tracer.result for tracer in self._tracers]  # type: ignore[misc]  # done without failure
                self._exchange_all()
        finally:
            self._cancel()

    def exchange(self, index: int, name: str, payload: Any) -> list[Any]:
        """One payload per trace; ``name`` must be the same in all."""
        answer: list[Any] = self._tracers[index].wait_at(name, payload)
        return answer

    def _exchange_all(self) -> None:
        arrived = [tracer.arrived for tracer in self._tracers]
        names = [arrival[0] if arrival is not None else "the end of the step" for arrival in arrived]
        if len(set(names)) > 1:
            seen = ", ".join(
                f"replica {replica} at {name}" for replica, name in zip(self._replicas, names, strict=True)
            )
            raise CollectiveError(f"replicas of one step went different ways: {seen}; all must make the same calls")
        payloads = [arrival[1] for arrival in arrived if arrival is not None]
        for tracer in self._tracers:
            tracer.answer = payloads

    def _cancel(self) -> None:
        for tracer in self._tracers:
            if not tracer.is_done:
                tracer.answer = _Cancelled()
                tracer.resume()
            tracer.join()
