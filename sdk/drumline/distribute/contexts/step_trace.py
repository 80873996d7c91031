"""A step while it is traced: references to its variables, and what its replicas have in common.

While a step is traced, every live variable is an input held in a local ``jax.new_ref``, so that user code can read and
write it anywhere: in cond, scan and nested jit. Written variables leave the step as outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state

from drumline.distribute.errors import ContextError, VariableScopeError

#: Keeps a module-level ``@jax.jit`` that reads a variable from reusing another step's trace (it would see old values).
trace_token = jax.make_user_context(None)
next_token = itertools.count(1)


class ReplicaNumberNeeded(Exception):  # noqa: N818  # no error: the step is traced again, once per replica
    """A trace for several replicas of the same shapes came to where each one needs its own."""


class StepTrace:
    """One trace of a step. ``replica`` is None where one program serves all replicas.

    ``is_shared``: the trace is for all replicas that have the shapes of ``replica``.
    """

    def __init__(self, strategy: Any, replica: int | None, *, is_shared: bool = False) -> None:
        self.strategy = strategy
        self.replica = replica
        self.is_shared = is_shared
        self.num_replicas: int = strategy.num_replicas_in_sync
        self.read: set[int] = set()
        self.written: set[int] = set()
        self.created: list[Any] = []
        self.made_before: list[Any] = []  # made by earlier traces of the same function, in creation order
        self.exchange: Callable[[str, Any], list[Any]] | None = None  # set where each replica has its own program
        self.top_state: Any = None
        #: Of a batch that may be padded, this replica's; whether the step asked for them; rows per replica otherwise.
        self.row_weights: Any = None
        self.minds_row_weights = False
        self.rows: tuple[int, ...] | None = None
        self._refs: dict[int, Any] = {}
        self._broadcast: dict[int, Any] = {}
        self._lend: Callable[[Any], Any] | None = None

    @contextmanager
    def lending(self, lend: Callable[[Any], Any]) -> Iterator[None]:
        """Variables are read by ``lend`` within, and neither written nor made: where refs can't be brought."""
        outer, self._lend = self._lend, lend
        try:
            yield
        finally:
            self._lend = outer

    def add_reference(self, variable: Any, value: Any) -> None:
        """Makes ``variable`` readable and writable in this trace, starting at ``value``."""
        self._refuse_where_lent(variable, "made")
        self._refs[id(variable)] = jax.new_ref(value)

    def load(self, variable: Any) -> Any:
        """Gives this replica's current value."""
        self.read.add(id(variable))
        ref = self._ref(variable)
        return ref[...] if self._lend is None else self._lend(variable)

    def store(self, variable: Any, value: Any) -> None:
        """Sets this replica's value. Gradients don't flow into a variable."""
        self._refuse_where_lent(variable, "written")
        ref = self._ref(variable)
        self.written.add(id(variable))
        try:
            ref[...] = jax.lax.stop_gradient(value)
        except Exception as error:
            if "vmapped" not in str(error):
                raise
            raise VariableScopeError(
                f"{variable!r} was written inside vmap with a value per mapped element; write it once outside, "
                "for example the mean of the mapped results"
            ) from error

    def take_final(self, variable: Any) -> Any:
        """The value at the end of the step; ends the ref's life."""
        return jax.freeze(self._ref(variable))

    def note_broadcast(self, tracer: Any) -> None:
        """Remembers a value that is the very same object on every replica."""
        self._broadcast[id(tracer)] = tracer

    def is_same_object(self, value: Any) -> bool:
        """Tells whether all replicas hold this very object: a Python scalar, a concrete array, a broadcast argument."""
        return not isinstance(value, jax.core.Tracer) or id(value) in self._broadcast

    def is_same_everywhere(self, value: Any) -> bool:
        """Tells whether all replicas hold the same object; where each has its own program they compare it.

        Every replica must come here.
        """
        if self.exchange is None or isinstance(value, jax.core.Tracer):
            return self.is_same_object(value)
        values = [np.asarray(other) for other in self.exchange("a variable update", value)]
        return all(other.shape == values[0].shape and bool((other == values[0]).all()) for other in values)

    @property
    def is_at_top_level(self) -> bool:
        """True outside every nested jit, cond, loop, grad and vmap of the step."""
        return bool(get_opaque_trace_state() == self.top_state)

    @property
    def is_lending(self) -> bool:
        """Whether what is traced now runs where refs can't be brought: on one logical device."""
        return self._lend is not None

    def _refuse_where_lent(self, variable: Any, what: str) -> None:
        if self._lend is not None:
            raise VariableScopeError(
                f"{variable!r} was {what} inside a function that one logical device computes, and the others would not "
                f"know of it; return the value from the function, and have the variable {what} in the step"
            )

    def _ref(self, variable: Any) -> Any:
        ref = self._refs.get(id(variable))
        if ref is None:
            raise ContextError(
                f"{variable!r} belongs to {variable.strategy!r} and was used in a step of {self.strategy!r}; create it "
                "in this strategy's scope, or pass its value as an argument"
            )
        return ref
