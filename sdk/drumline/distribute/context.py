"""Where the current code runs: cross-replica (in a scope, a merge, an update) or inside one replica's step.

Contexts nest on a stack per thread. Below the stack lies the default strategy: one replica, no scope.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import lax

from drumline.distribute.errors import ContextError
from drumline.distribute.executors import _jaxpr
from drumline.distribute.values import REPLICA_AXIS

if TYPE_CHECKING:
    from drumline.distribute.lifting import Frame
    from drumline.distribute.strategy import Strategy


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One level: ``replica`` is None in cross-replica context; ``frame`` is set while a step is traced.

    ``updating`` is the replica whose copy an ``extended.update`` function works on.
    """

    strategy: Strategy
    replica: ReplicaContext | None = None
    frame: Frame | None = None
    updating: int | None = None


class _Stack(threading.local):
    def __init__(self) -> None:
        self.entries: list[ContextEntry] = []


_stack = _Stack()
_global: list[Strategy] = []  # at most one: set_strategy
_default: list[Strategy] = []  # at most one: made on first use, so that importing starts no backend


@contextmanager
def entered(entry: ContextEntry) -> Iterator[None]:
    """Makes ``entry`` current on this thread."""
    _stack.entries.append(entry)
    try:
        yield
    finally:
        _stack.entries.pop()


@contextmanager
def entered_if(entry: ContextEntry | None) -> Iterator[None]:
    """Makes ``entry`` current, if there is one (a thread takes over the context of the one that started it)."""
    if entry is None:
        yield
        return
    with entered(entry):
        yield


def current_entry() -> ContextEntry | None:
    """The innermost entry of this thread; None outside every scope and step."""
    return _stack.entries[-1] if _stack.entries else None


def current_frame() -> Frame | None:
    """The frame of the step being traced on this thread, also inside its merges and updates."""
    return _stack.entries[-1].frame if _stack.entries else None


def get_strategy() -> Strategy:
    """The current strategy; outside every scope the default one (one replica)."""
    if _stack.entries:
        return _stack.entries[-1].strategy
    return _global[0] if _global else default_strategy()


def has_strategy() -> bool:
    """Tells whether a strategy other than the default one is current."""
    return bool(_global) or (bool(_stack.entries) and get_strategy() is not default_strategy())


def set_strategy(strategy: Strategy | None) -> None:
    """Makes ``strategy`` current for the whole process; None undoes it. ContextError inside a scope."""
    if _stack.entries:
        raise ContextError("set_strategy was called inside a scope or a step; call it outside")
    _global[:] = [] if strategy is None else [strategy]


def experimental_set_strategy(strategy: Strategy | None) -> None:
    """As :func:`set_strategy`."""
    set_strategy(strategy)


def default_strategy() -> Strategy:
    """The built-in strategy of one replica."""
    if not _default:
        from drumline.distribute.one_device import DefaultStrategy

        _default.append(DefaultStrategy())
    return _default[0]


def in_cross_replica_context() -> bool:
    """True in a scope, a merge function and an update function; False in a step and outside everything."""
    if _stack.entries:
        return _stack.entries[-1].replica is None
    return bool(_global)


def in_replica_context() -> bool:
    """True inside a function given to ``run``."""
    return bool(_stack.entries) and _stack.entries[-1].replica is not None


def get_replica_context() -> ReplicaContext | None:
    """The context of the replica this code runs for; None in cross-replica context."""
    if _stack.entries:
        return _stack.entries[-1].replica
    return None if _global else default_strategy().default_replica_context


def require_replica_context(what: str) -> ReplicaContext:
    """The current replica context; ContextError naming ``what`` in cross-replica context."""
    replica = get_replica_context()
    if replica is None:
        raise ContextError(f"{what} was called in cross-replica context; call it inside the function given to run")
    return replica


def require_cross_replica_context(strategy: Strategy, what: str) -> None:
    """ContextError unless ``what`` may run here: not in a step, a traced function, another strategy's scope.

    UnsupportedError where the strategy has devices of other processes.
    """
    strategy.require_one_process(what)
    if what != "scope" and current_frame() is None:
        refuse_in_traced_function(what)
    if not _stack.entries:
        return
    entry = _stack.entries[-1]
    if entry.replica is not None and entry.replica is not entry.strategy.default_replica_context:
        raise ContextError(
            f"{what} was called inside a step; call it outside run, or inside a merge_call function. "
            "Inside a step use dist.all_reduce or dist.all_gather"
        )
    if entry.strategy is not strategy and entry.strategy is not default_strategy():
        raise ContextError(
            f"{what} of {strategy!r} was called inside the scope of {entry.strategy!r}; strategies can't be mixed"
        )


def refuse_in_traced_function(what: str) -> None:
    """ContextError inside jit, grad, a loop ... that is no step: what is done there is done once, with placeholders."""
    if _jaxpr.is_tracing():
        raise ContextError(
            f"{what} was called inside a traced function (jit, grad, vmap, scan, fori_loop, ...); call it outside: run "
            "compiles the step itself. To repeat a step on the device, use lax.scan inside the step"
        )


class ReplicaContext:
    """What a step sees of itself. Valid only inside the step it was made for."""

    def __init__(self, strategy: Strategy, replica: int | None, frame: Frame | None) -> None:
        self._strategy = strategy
        self._replica = replica
        self._frame = frame

    @property
    def strategy(self) -> Strategy:
        """The strategy that runs this step."""
        return self._strategy

    @property
    def num_replicas_in_sync(self) -> int:
        """Replicas that step together."""
        return self._strategy.num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> Any:
        """int32 scalar, 0 to ``num_replicas_in_sync - 1``.

        A tracer where one program serves all replicas. A step whose Python control flow depends on it is traced once
        per replica instead, with the number itself.
        """
        if self._frame is None:
            return np.int32(0)
        self._check("replica_id_in_sync_group")
        return np.int32(self._replica) if self._replica is not None else lax.axis_index(REPLICA_AXIS)

    @property
    def devices(self) -> tuple[jax.Device, ...]:
        """The devices this replica may run on; all of the strategy's where one program serves all replicas."""
        devices = self._strategy.devices
        return devices if self._replica is None else (devices[self._replica],)

    def all_reduce(self, op: Any, value: Any, options: Any = None) -> Any:
        """As :func:`drumline.distribute.all_reduce`."""
        from drumline.distribute import collectives

        self._check("all_reduce")
        return collectives.all_reduce(op, value, options)

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """As :func:`drumline.distribute.all_gather`."""
        from drumline.distribute import collectives

        self._check("all_gather")
        return collectives.all_gather(value, axis, options)

    def merge_call(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """As :func:`drumline.distribute.merge_call`."""
        from drumline.distribute import collectives

        self._check("merge_call")
        return collectives.merge_call(fn, args, kwargs)

    def _check(self, what: str) -> None:
        if get_replica_context() is not self:
            raise ContextError(
                f"{what} of a replica context that is not the current one; take dist.get_replica_context() inside "
                "the step, and don't keep it"
            )

    def __repr__(self) -> str:
        replica = "any" if self._replica is None else self._replica
        return f"ReplicaContext(replica {replica} of {self.num_replicas_in_sync})"
