"""Where the current code runs: cross-replica (in a scope, a merge, an update) or inside one replica's step.

Contexts nest on a stack per thread. Below the stack lies the default strategy: one replica, no scope.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from jax.extend.core import get_opaque_trace_state

from drumline.distribute.base.runtime import is_tracing, state_outside_traces
from drumline.distribute.contexts.step_trace import StepTrace
from drumline.distribute.errors import ContextError


class StrategyProtocol(Protocol):
    """What the rooms below the strategies know of one."""

    #: The context of code outside every scope; only the default strategy has one.
    default_replica_context: Any

    @property
    def num_replicas_in_sync(self) -> int:
        """Replicas that step together."""


class ReplicaProtocol(Protocol):
    """What the rooms below the step's own functions know of a replica context."""

    @property
    def strategy(self) -> Any:
        """The strategy that runs the step."""

    @property
    def replica_id_in_sync_group(self) -> Any:
        """int32 scalar, which may be a tracer."""


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One level: ``replica`` is None in cross-replica context; ``trace`` is set while a step is traced.

    ``updating`` is the replica whose copy an ``extended.update`` function works on.
    """

    strategy: StrategyProtocol
    replica: ReplicaProtocol | None = None
    trace: StepTrace | None = None
    updating: int | None = None


class _Stack(threading.local):
    def __init__(self) -> None:
        self.entries: list[ContextEntry] = []


_stack = _Stack()
_global: list[StrategyProtocol] = []  # at most one: set_strategy
_default: list[StrategyProtocol] = []  # at most one: made on first use, so that importing starts no backend
_make_default: list[Callable[[], StrategyProtocol]] = []  # one, once the strategies are imported


@contextmanager
def enter(entry: ContextEntry) -> Iterator[None]:
    """Makes ``entry`` current on this thread."""
    _stack.entries.append(entry)
    try:
        yield
    finally:
        _stack.entries.pop()


@contextmanager
def enter_if(entry: ContextEntry | None) -> Iterator[None]:
    """Makes ``entry`` current, if there is one (a thread takes over the context of the one that started it)."""
    if entry is None:
        yield
        return
    with enter(entry):
        yield


def current_entry() -> ContextEntry | None:
    """The innermost entry of this thread; None outside every scope and step."""
    return _stack.entries[-1] if _stack.entries else None


def current_trace() -> StepTrace | None:
    """The trace of the step being traced on this thread, also inside its merges and updates."""
    return _stack.entries[-1].trace if _stack.entries else None


def current_strategy() -> StrategyProtocol:
    """The current strategy; outside every scope the default one (one replica)."""
    if _stack.entries:
        return _stack.entries[-1].strategy
    return _global[0] if _global else default_strategy()


def has_strategy() -> bool:
    """Tells whether a strategy other than the default one is current."""
    return bool(_global) or (bool(_stack.entries) and current_strategy() is not default_strategy())


def set_global(strategy: StrategyProtocol | None) -> None:
    """Makes ``strategy`` current for the whole process; None undoes it. ContextError inside a scope."""
    if _stack.entries:
        raise ContextError("set_strategy was called inside a scope or a step; call it outside")
    _global[:] = [] if strategy is None else [strategy]


def provide_default(make: Callable[[], StrategyProtocol]) -> None:
    """Says how the default strategy is made; the strategies lie above this room, so it can't import theirs."""
    _make_default[:] = [make]


def default_strategy() -> StrategyProtocol:
    """The built-in strategy of one replica."""
    if not _default:
        _default.append(_make_default[0]())
    return _default[0]


def made_default_strategy() -> StrategyProtocol | None:
    """The default strategy, or None while nobody has asked for it: it has no variables then."""
    return _default[0] if _default else None


def in_cross_replica_context() -> bool:
    """True in a scope, a merge function and an update function; False in a step and outside everything."""
    if _stack.entries:
        return _stack.entries[-1].replica is None
    return bool(_global)


def in_replica_context() -> bool:
    """True inside a function given to ``run``."""
    return bool(_stack.entries) and _stack.entries[-1].replica is not None


def current_replica() -> ReplicaProtocol | None:
    """The context of the replica this code runs for; None in cross-replica context."""
    if _stack.entries:
        return _stack.entries[-1].replica
    if _global:
        return None
    default: ReplicaProtocol | None = default_strategy().default_replica_context
    return default


def require_replica_context(what: str) -> ReplicaProtocol:
    """The current replica context; ContextError naming ``what`` in cross-replica context."""
    replica = current_replica()
    if replica is None:
        raise ContextError(f"{what} was called in cross-replica context; call it inside the function given to run")
    return replica


def require_cross_replica_context(
    strategy: StrategyProtocol, what: str, *, tracing: Literal["refused", "in_merge", "allowed"] = "in_merge"
) -> None:
    """ContextError unless ``what`` may run here: not in a step nor in another strategy's scope.

    ``tracing``: may it run while JAX traces: not at all, in a merge function only, or anywhere.
    """
    entry = _stack.entries[-1] if _stack.entries else None
    # Tracing before the contexts: under a user's own jit no context is entered, and the message has to name the jit.
    # Written out rather than asked of is_tracing: every step comes by here.
    is_traced = tracing != "allowed" and get_opaque_trace_state() != state_outside_traces()
    if is_traced and (entry is None or entry.trace is None):
        raise _tracing_refusal(what)
    if entry is not None:
        if entry.replica is not None and entry.replica is not entry.strategy.default_replica_context:
            raise ContextError(
                f"{what} was called inside a step; call it outside run, or inside a merge_call function. "
                "Inside a step use dist.all_reduce or dist.all_gather"
            )
        if entry.strategy is not strategy and entry.strategy is not default_strategy():
            raise ContextError(
                f"{what} of {strategy!r} was called inside the scope of {entry.strategy!r}; strategies can't be mixed"
            )
        if is_traced and tracing == "refused":
            raise _tracing_refusal(what)


def refuse_in_traced_function(what: str) -> None:
    """ContextError inside jit, grad, a loop ... that is no step: what is done there is done once, with placeholders."""
    if is_tracing():
        raise _tracing_refusal(what)


def _tracing_refusal(what: str) -> ContextError:
    return ContextError(
        f"{what} was called inside a traced function (jit, grad, vmap, scan, fori_loop, ...); call it outside: run "
        "compiles the step itself. To repeat a step on the device, use lax.scan inside the step"
    )
