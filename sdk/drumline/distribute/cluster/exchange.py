"""What the processes of a program tell each other besides their computations, through JAX's distributed service.

Not by collectives: a process that is elsewhere in the program is named here, where a collective would hang.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.distributed import global_state  # JAX shows its service nowhere else

from drumline.distribute.errors import ClusterError, ProcessesDifferError

#: Seconds to wait for a process that computes, compiles or reads; then it is named.
TIMEOUT_S = 300.0
#: Signals are handled between two waits, seconds.
_WAIT_S = 1.0
_MOST_SHOWN = 300
_CLOSED = "nobody reads this series any more"
_KEPT = 64


class ExchangesInOrder:
    """Which exchanges of all processes the main thread has come to, among the steps that it runs: the same in each.

    Those of other threads, and those between some of the processes, have no place in that order.
    """

    def __init__(self) -> None:
        self._recent: tuple[int, tuple[str, ...]] = (0, ())
        self._announced: str | None = None

    def read(self) -> tuple[int, tuple[str, ...]]:
        """How many it came to, and what the newest 64 were about, the last one last."""
        count, recent = self._recent
        announced = self._announced
        return (count, recent) if announced is None else (count + 1, (*recent, announced))

    def announce(self, what: str | None) -> None:
        """The next one will be about that, whatever happens before; None once it may not come."""
        self._announced = what

    def came_to(self, what: str) -> None:
        """It tells the others."""
        count, recent = self._recent
        self._announced = None
        self._recent = (count + 1, (*recent[1 - _KEPT :], what))


#: Of this process.
in_order = ExchangesInOrder()


@dataclass(frozen=True, slots=True)
class ExchangeWait:
    """For how long one exchange waited for the other processes; times are ``time.monotonic_ns()``."""

    began_at: int
    ended_at: int
    is_on_main_thread: bool


class ExchangeWaits:
    """The newest 64 of this process."""

    def __init__(self) -> None:
        self._recent: tuple[ExchangeWait, ...] = ()
        self._lock = threading.Lock()

    def read(self) -> tuple[ExchangeWait, ...]:
        """In the order in which they ended."""
        return self._recent

    def note(self, began_at: int) -> None:
        """The calling thread has waited since then."""
        is_main = threading.current_thread() is threading.main_thread()
        wait = ExchangeWait(began_at, time.monotonic_ns(), is_main)
        with self._lock:
            self._recent = (*self._recent[1 - _KEPT :], wait)


#: Of this process.
waits = ExchangeWaits()


class Exchange:
    """A series of exchanges between ``processes``, which all take part in each, in one order, on one thread."""

    def __init__(
        self, name: str, processes: Sequence[int], timeout_s: float = TIMEOUT_S, *, is_branch: bool = False
    ) -> None:
        self._name = name
        self.processes = tuple(processes)
        self._timeout_s = timeout_s
        self._own = jax.process_index()
        self._count = 0
        self._heard = 0
        self._deleted = 0
        self._branches = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_of_all = not is_branch and len(self.processes) == jax.process_count()

    def branch(self, name: str) -> Exchange:
        """A series of its own between the same processes, for another thread. All make their branches in one order."""
        self._branches += 1
        return Exchange(f"{self._name}/{name} {self._branches}", self.processes, self._timeout_s, is_branch=True)

    def tell(self, what: str, value: Any) -> list[Any]:
        """``value`` (of JSON) of each process, in their order, once all have told theirs about the same ``what``.

        Raises ClusterError naming those that did not come in time; ProcessesDifferError naming those that came to
        another exchange, or failed before this one.
        """
        told = self._read_all(what, self._put({"what": what, "value": value}))
        failed = {process: one["failed"] for process, one in told.items() if "failed" in one}
        if failed:
            shown = "; ".join(f"process {process}: {why}" for process, why in failed.items())
            raise ProcessesDifferError(f"{what}: failed in {shown}", tuple(failed), have_failed=True)
        odd = odd_processes({process: one["what"] for process, one in told.items()})
        if odd:
            elsewhere = ", ".join(f"process {process} at {told[process]['what']}" for process in odd)
            usual = next(one["what"] for process, one in told.items() if process not in odd)
            raise ProcessesDifferError(
                f"the processes are not at the same place of one program: {elsewhere}, the others at {usual}. Every "
                "process makes the same calls of the strategy in the same order",
                odd,
            )
        return [told[process]["value"] for process in self.processes]

    def require_same(self, what: str, values: Mapping[str, Any]) -> None:
        """ProcessesDifferError naming the first of ``values`` (of JSON) that differs between processes, and where."""
        told = self.tell(what, dict(values))
        for name in dict.fromkeys(name for one in told for name in one):
            by_process = {process: one.get(name) for process, one in zip(self.processes, told, strict=True)}
            if odd := odd_processes({process: json.dumps(value) for process, value in by_process.items()}):
                raise ProcessesDifferError(
                    f"{what}: {name} of {_name_processes(odd)} is not that of the other processes "
                    f"({_show(by_process[odd[0]])}, there {_show(_usual(by_process, odd))}). It must be the same in "
                    "all: compute it from the same numbers and seeds, or make it per replica",
                    odd,
                )

    @contextmanager
    def telling_failure(self, what: str) -> Iterator[None]:
        """Where the block raises, tells those that come to their next exchange, so that they do not wait for it."""
        is_in_order = self._is_in_order()
        if is_in_order:
            in_order.announce(what)
        try:
            yield
        except (ProcessesDifferError, ClusterError):
            raise  # of an exchange: the others know
        except BaseException as error:
            self._put({"what": what, "failed": f"{type(error).__name__}: {error}"[:_MOST_SHOWN]})
            raise
        finally:
            if is_in_order:
                in_order.announce(None)

    def _is_in_order(self) -> bool:
        return self._is_of_all and threading.current_thread() is threading.main_thread()

    def close(self) -> None:
        """Ends the series, for the others too: whoever waits in it, here or there, gets a ProcessesDifferError."""
        with self._lock:
            self._is_closed = True
            self._write({"what": "the end", "failed": _CLOSED})

    def _put(self, message: dict[str, Any]) -> int:
        """The number of the exchange that it is this process's part of."""
        with self._lock:
            if self._is_closed:
                raise ProcessesDifferError(_CLOSED)
            if self._is_in_order():
                in_order.came_to(message["what"])
            self._write(message)
            return self._count

    def _write(self, message: dict[str, Any]) -> None:
        self._count += 1
        client = _client()
        client.key_value_set(self._key(self._count, self._own), json.dumps(message))
        while self._deleted < self._heard - 1:  # whoever told the one that was heard here has read all before
            self._deleted += 1
            client.key_value_delete(self._key(self._deleted, self._own))

    def _read_all(self, what: str, count: int) -> dict[int, dict[str, Any]]:
        began_at, deadline = time.monotonic_ns(), time.monotonic() + self._timeout_s
        told = {process: json.loads(self._read(process, count, what, deadline)) for process in self.processes}
        self._heard = count
        waits.note(began_at)
        return told

    def _read(self, process: int, count: int, what: str, deadline: float) -> str:
        key, client = self._key(count, process), _client()
        while True:
            try:
                text: str = client.blocking_key_value_get(key, int(_WAIT_S * 1000))
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise ClusterError(f"{what}: process {process} can't be heard any more: {error}") from error
            else:
                return text
            if self._is_closed:
                raise ProcessesDifferError(_CLOSED)
            if time.monotonic() >= deadline:
                raise ClusterError(
                    f"{what}: process {process} did not come to it in {self._timeout_s:.0f} s; it is elsewhere in the "
                    "program, or stands still"
                )

    def _key(self, count: int, process: int) -> str:
        return f"drumline/{self._name}/{count}/{process}"


def odd_processes(values: Mapping[int, str]) -> tuple[int, ...]:
    """Those whose value is not that of most; where two values are as frequent, not that of the first process."""
    ((usual, _),) = Counter(values.values()).most_common(1)
    return tuple(process for process, value in values.items() if value != usual)


def digest(value: Any) -> str:
    """64 bits of the type, shape and numbers of an array, or of what numpy makes of a value."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = np.asarray(value)
    summed = hashlib.blake2b(f"{array.dtype}{array.shape}".encode(), digest_size=8)
    summed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return summed.hexdigest()


def _client() -> Any:
    client = global_state.client
    if client is None:
        raise ClusterError("JAX's distributed service has ended, and the processes can't tell each other anything")
    return client


def _usual(by_process: Mapping[int, Any], odd: Sequence[int]) -> Any:
    return next(value for process, value in by_process.items() if process not in odd)


def _name_processes(processes: Sequence[int]) -> str:
    return f"process{'es' * (len(processes) > 1)} {', '.join(map(str, processes))}"


def _show(value: Any) -> str:
    return "missing" if value is None else f"{value!r:.60}"
