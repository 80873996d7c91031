"""State that lives across steps: made in a scope, read and written inside ``run``.

``Variable(...)`` makes the class its strategy needs: a mirrored variable, per-replica copies synchronized on read, one
aggregating copy, or a plain variable.
"""

from __future__ import annotations

import operator
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drumline.distribute.base.enums import VariableAggregation, VariableSynchronization
from drumline.distribute.base.runtime import own_copy
from drumline.distribute.cluster.exchange import digest
from drumline.distribute.combine.primitives import aggregate
from drumline.distribute.combine.scatter import ScatterOp, scatter
from drumline.distribute.contexts import context
from drumline.distribute.contexts.step_trace import StepTrace
from drumline.distribute.errors import (
    ContextError,
    InvalidValueError,
    UnsupportedError,
)
from drumline.distribute.values.indexed_slices import IndexedSlices
from drumline.distribute.values.operators import ArrayOperators
from drumline.distribute.values.per_replica import Mirrored, PerReplica, PerReplicaSlices
from drumline.distribute.variables.owner import current_owner
from drumline.distribute.variables.scatter import ScatterMethods, rows_for_scatter, scatter_into_one
from drumline.distribute.variables.storage import StoredValue
from drumline.distribute.variables.writes import (
    Update,
    apply_update,
    cast_for,
    check_shapes,
    initial_value_of,
    refuse_in_traced_function,
    replace_value,
)


class Variable(StoredValue, ScatterMethods, ArrayOperators):
    """A value that steps can change. Operators work on the current value; ``assign*`` changes it.

    Inside a step reads and writes are this replica's; what differing writes mean is told by ``synchronization`` and
    ``aggregation`` (each an enum member or its name in any case).
    """

    __array_ufunc__ = None

    #: What synchronization "auto" comes to.
    auto_synchronization: VariableSynchronization = VariableSynchronization.AUTO

    def __new__(cls, *args: Any, **kwargs: Any) -> Variable:
        if cls is not Variable:
            return super().__new__(cls)
        trace = context.current_trace()
        if trace is not None and len(trace.created) < len(trace.made_before):
            made: Variable = trace.made_before[len(trace.created)]
            return made
        kind = current_owner().variable_class(
            VariableSynchronization.parse(kwargs.get("synchronization", "auto")),
            VariableAggregation.parse(kwargs.get("aggregation", "none")),
        )
        variable: Variable = super().__new__(kind)
        return variable

    def __init__(
        self,
        initial_value: Any,
        *,
        trainable: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
        synchronization: VariableSynchronization | str = "auto",
        aggregation: VariableAggregation | str = "none",
        layout: Literal["mirrored"] = "mirrored",
    ) -> None:
        trace = context.current_trace()
        if trace is not None and any(self is made for made in trace.made_before):
            self._create_again(trace, initial_value)
            return
        if layout != "mirrored":
            raise UnsupportedError(f"layout={layout!r}: variables are held as layout='mirrored' only")
        self.strategy = current_owner()
        self.synchronization = VariableSynchronization.parse(synchronization)
        if self.synchronization is VariableSynchronization.AUTO:
            self.synchronization = self.auto_synchronization
        self.aggregation = VariableAggregation.parse(aggregation)
        on_read = self.synchronization is VariableSynchronization.ON_READ
        self.trainable = trainable if trainable is not None else not on_read
        array = jnp.asarray(initial_value_of(initial_value), dtype)
        self.shape = array.shape
        self.dtype = array.dtype
        if trace is None:
            refuse_in_traced_function(self, "made", array)
        self._check_kind()
        self.name = name or self.strategy.next_variable_name()
        if trace is not None:
            self._create_in(trace, array)
        else:
            self._require_same_start(array)
            self._buffer = self._place(jnp.array(array, copy=True))
        self.strategy.register_variable(self)

    def _require_same_start(self, array: jax.Array) -> None:
        """ProcessesDifferError where another process of the strategy makes another variable, or starts it otherwise."""
        if self.strategy.exchange is not None:
            kind = f"{self.synchronization.name.lower()}, {self.aggregation.name.lower()}"
            told = {"shape and type": f"{array.dtype}{list(array.shape)}", "kind": kind, "initial value": digest(array)}
            self.strategy.exchange.require_same(f"variable {self.name!r}", told)

    # reading

    @property
    def value(self) -> jax.Array:
        """The value: this replica's inside a step, the aggregated one elsewhere.

        VariableScopeError inside a traced function that is no step.
        """
        entry = context.current_entry()
        if entry is not None and entry.trace is not None:
            return self._read_in(entry.trace)
        refuse_in_traced_function(self, "read")
        with self.strategy.lock:  # a step on another thread may be about to donate the buffer
            if entry is not None and entry.updating is not None:
                return self.copy_at(entry.updating)
            return self._read()

    def read_value(self) -> jax.Array:
        """Same as ``value``."""
        return self.value

    def block_until_ready(self) -> Self:
        """Waits for the steps sent so far; so does ``jax.block_until_ready`` of a structure of variables.

        The next step copies a variable whose ``value`` was given out. This gives nothing out.
        """
        if context.current_trace() is None and self.is_initialized:
            with self.strategy.lock:
                self._buffer.block_until_ready()
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value on the host."""
        return np.asarray(self.value)

    @property
    def handle(self) -> Any:
        """The storage behind the value; only a replica has one (ValueError in cross-replica context)."""
        if context.in_cross_replica_context():
            raise InvalidValueError(f"{self!r} has one handle per replica; read .value or .values instead")
        return self.value

    # writing

    # The further parameters are TensorFlow's: a compiled step names, locks and reads nothing by them.

    def assign(self, value: Any, use_locking: Any = None, name: Any = None, read_value: Any = True) -> Self:
        """Sets the value."""
        return self._update_whole(replace_value, value, "assign")

    def assign_add(self, delta: Any, use_locking: Any = None, name: Any = None, read_value: Any = True) -> Self:
        """Adds ``delta``."""
        return self._update_whole(operator.add, delta, "assign_add")

    def assign_sub(self, delta: Any, use_locking: Any = None, name: Any = None, read_value: Any = True) -> Self:
        """Subtracts ``delta``."""
        return self._update_whole(operator.sub, delta, "assign_sub")

    def _update_whole(self, update: Update, operand: Any, what: str) -> Self:
        check_shapes(self, operand, what)
        return self._update(update, operand, what)

    def _update(self, update: Update, operand: Any, what: str) -> Self:
        entry = context.current_entry()
        if entry is not None and entry.trace is not None:
            if entry.replica is not None:
                self._update_in_replica(entry.trace, update, self._cast(operand), what)
            else:
                self._update_in_merge(entry.trace, update, operand, what)
            return self
        refuse_in_traced_function(self, "written", getattr(operand, "value", operand))
        with self.strategy.lock:
            if entry is not None and entry.updating is not None:
                self._update_copy(entry.updating, update, operand)
            else:
                self._update_outside(update, operand, what)
        return self

    def _scatter(self, op: ScatterOp, slices: Any) -> Self:
        slices = rows_for_scatter(self, op, slices)
        if isinstance(slices, PerReplicaSlices):
            self._scatter_per_copy(op, slices)
            return self
        trace, in_replica = context.current_trace(), context.in_replica_context()
        if trace is not None and in_replica and trace.num_replicas > 1:
            self._scatter_in_replica(trace, op, slices)
            return self
        return self._update(lambda current, _: scatter(op, current, slices), np.zeros((), self.dtype), f"scatter_{op}")

    def _scatter_per_copy(self, op: ScatterOp, slices: PerReplicaSlices) -> None:
        raise InvalidValueError(
            f"scatter_{op} of {slices!r} to {self!r}, of which all replicas have the same; reduce the rows first, by "
            "strategy.reduce"
        )

    def _scatter_in_replica(self, trace: StepTrace, op: ScatterOp, slices: IndexedSlices) -> None:
        scatter_into_one(self, trace, op, slices)

    # what the kinds of variable differ in

    def _check_kind(self) -> None:
        """Refuses kinds that can't work; raises InvalidValueError."""

    def _create_in(self, trace: StepTrace, array: jax.Array) -> None:
        """A variable made inside a step starts at replica 0's value on every replica."""
        first = aggregate(lax.stop_gradient(array), VariableAggregation.ONLY_FIRST_REPLICA, trace.num_replicas)
        trace.add_reference(self, first)
        trace.created.append(self)

    def _create_again(self, trace: StepTrace, initial_value: Any) -> None:
        """The code that made this variable is traced again, for another replica or other shapes."""
        if self._buffer is None:
            self._create_in(trace, jnp.asarray(initial_value_of(initial_value), self.dtype))
        else:
            trace.created.append(self)

    def _read(self) -> jax.Array:
        self._escaped = True
        return self._buffer  # type: ignore[no-any-return]  # a jax.Array; Any while not placed

    def _read_in(self, trace: StepTrace) -> jax.Array:
        return trace.load(self)  # type: ignore[no-any-return]

    def _update_in_replica(self, trace: StepTrace, update: Update, operand: Any, what: str) -> None:
        """Every replica writes the one value: deltas add up, the last replica's assignment stays."""
        if update is replace_value or trace.num_replicas == 1:
            trace.store(self, update(trace.load(self), operand))
            return
        total = operand * trace.num_replicas if trace.is_same_everywhere(operand) else lax.psum(operand, "replica")
        trace.store(self, update(trace.load(self), total))

    def _update_in_merge(self, trace: StepTrace, update: Update, operand: Any, what: str) -> None:
        operand = getattr(operand, "local", operand)  # a merged value: this replica's component
        trace.store(self, update(trace.load(self), self._cast(operand)))

    def _update_copy(self, copy: int, update: Update, operand: Any) -> None:
        self._update_outside(update, operand, "update")

    def _update_outside(self, update: Update, operand: Any, what: str) -> None:
        operand = operand.values[0] if isinstance(operand, PerReplica) else operand
        self._buffer = self._place(apply_update(update, own_copy(self._buffer), self._cast(operand)))

    #: Do all copies provably hold the same value?
    is_uniform: bool = False

    def note_divergence(self) -> None:
        """A step was traced that writes values which may differ between the replicas."""

    def read_for_reduce(self) -> Any:
        """What ``strategy.reduce`` reduces: the value, or the copies where they differ."""
        return self.value

    def _cast(self, operand: Any) -> Any:
        if isinstance(operand, PerReplica):
            return operand
        operand = operand.value if isinstance(operand, Mirrored) else operand
        operand = operand.to_dense(self.shape) if isinstance(operand, IndexedSlices) else operand
        return cast_for(self, operand, self.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        if context.current_strategy() is not self.strategy:
            raise ContextError(f"{self!r} can be deep-copied under its own strategy only, {self.strategy!r}")
        with context.enter(context.ContextEntry(self.strategy)):
            return type(self)(
                self.value, trainable=self.trainable, synchronization=self.synchronization, aggregation=self.aggregation
            )

    def __repr__(self) -> str:
        name = getattr(self, "name", "?")
        return f"{type(self).__name__}({name}, {jnp.dtype(self.dtype).name}{list(self.shape)})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.value, dtype)

    def __jax_array__(self) -> jax.Array:
        return self.value

    def __len__(self) -> int:
        return self.shape[0]
