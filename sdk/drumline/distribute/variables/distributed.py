"""The kinds of variable whose copies or writes span replicas."""

from __future__ import annotations

import warnings
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drumline.distribute.base.enums import ReduceOp, VariableAggregation, VariableSynchronization
from drumline.distribute.combine import reduction
from drumline.distribute.combine.combiners import InStepCombiner
from drumline.distribute.combine.primitives import aggregate, require_agreement
from drumline.distribute.combine.scatter import ScatterOp, scatter
from drumline.distribute.contexts import context
from drumline.distribute.contexts.step_trace import StepTrace
from drumline.distribute.errors import DivergingCopiesWarning, InvalidValueError, UnsupportedError
from drumline.distribute.values.indexed_slices import IndexedSlices
from drumline.distribute.values.per_replica import PerReplica, PerReplicaSlices
from drumline.distribute.variables.storage import HomeValue, ReplicatedValue, StackedValue
from drumline.distribute.variables.variable import Variable
from drumline.distribute.variables.writes import Update, apply_update, replace_value


class _AggregatedVariable(Variable):
    """Writes that differ between replicas become one by ``aggregation``."""

    def _update_in_replica(self, trace: StepTrace, update: Update, operand: Any, what: str) -> None:
        if trace.num_replicas == 1:
            combined = operand
        elif self.aggregation is VariableAggregation.NONE:
            raise InvalidValueError(
                f"{self!r} was written by several replicas; create it with aggregation='sum', 'mean' or "
                "'only_first_replica' to say what that means"
            )
        elif trace.is_same_everywhere(operand):
            if self.aggregation is VariableAggregation.SUM:
                shown = "(an argument)" if isinstance(operand, jax.core.Tracer) else np.asarray(operand).tolist()
                raise InvalidValueError(
                    f"{what} of the same value {shown} on every replica to {self!r} with aggregation='sum': say "
                    "which is meant, aggregation='mean' or a value computed per replica"
                )
            combined = operand
        else:
            _check_mean(self)
            combined = aggregate(lax.stop_gradient(operand), self.aggregation, trace.num_replicas)
        trace.store(self, update(trace.load(self), combined))

    def _update_outside(self, update: Update, operand: Any, what: str) -> None:
        self._refuse_own_components(operand, what)
        super()._update_outside(update, operand, what)

    def _update_in_merge(self, trace: StepTrace, update: Update, operand: Any, what: str) -> None:
        if trace.num_replicas > 1 and isinstance(operand, PerReplica):
            local = getattr(operand, "local", None)
            if local is None or getattr(operand, "is_known_to_differ", False):
                self._refuse_own_components(operand, what)
            operand = require_agreement(
                self._cast(local), trace.num_replicas, self._own_components_refusal(operand, what)
            )
        super()._update_in_merge(trace, update, operand, what)

    def _refuse_own_components(self, operand: Any, what: str) -> None:
        if isinstance(operand, PerReplica):
            raise InvalidValueError(self._own_components_refusal(operand, what))

    def _own_components_refusal(self, operand: Any, what: str) -> str:
        return f"{what} of {operand!r} to {self!r}, whose copies must stay equal; reduce it first, by strategy.reduce"

    def _scatter_in_replica(self, trace: StepTrace, op: ScatterOp, slices: IndexedSlices) -> None:
        if self.aggregation is VariableAggregation.NONE:
            raise InvalidValueError(
                f"{self!r} was written by several replicas; create it with aggregation='sum', 'mean' or "
                "'only_first_replica' to say what that means"
            )
        if self.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            values, indices = (
                aggregate(lax.stop_gradient(jnp.asarray(part)), self.aggregation, trace.num_replicas)
                for part in (slices.values, slices.indices)
            )
            trace.store(self, scatter(op, trace.load(self), IndexedSlices(values, indices)))
            return
        if op in ("min", "max", "update"):
            raise UnsupportedError(
                f"scatter_{op} to {self!r} with aggregation='{self.aggregation.name.lower()}': replicas' rows can't be "
                "added up there; use aggregation='only_first_replica' or 'none'"
            )
        _check_mean(self)
        slices.rows_of(self.shape)  # refuses rows that are none, while they are known
        # The replicas' rows, not an array of the variable's shape: a table has many more than a step touches. A row
        # that several replicas change is changed by each of them, as in TensorFlow.
        rows = reduction.reduce(InStepCombiner(trace), ReduceOp.parse(self.aggregation.name), _detach(slices))
        trace.store(self, scatter(op, trace.load(self), rows))

    def _check_kind(self) -> None:
        _check_mean(self)


class MirroredVariable(ReplicatedValue, _AggregatedVariable):
    """One value, a copy on every replica's device."""

    auto_synchronization = VariableSynchronization.ON_WRITE

    def _update_copy(self, copy: int, update: Update, operand: Any) -> None:
        components = list(self.values)
        components[copy] = apply_update(update, components[copy], self._cast(operand))
        self.commit_components(components)


class AggregatingVariable(HomeValue, _AggregatedVariable):
    """One value on the parameter device of CentralStorageStrategy."""

    def _check_kind(self) -> None:
        """Every kind is accepted; a write that the kind can't take fails."""


class _StackedVariable(StackedValue, Variable):
    """One independent copy per replica, which each replica writes."""

    def read_for_reduce(self) -> Any:
        with self.strategy.lock:
            self._escaped = True
            return PerReplica.from_stacked(self._buffer)

    def _read_first(self) -> jax.Array:
        """Replica 0's copy. Where that is another process's, all of them ask for it."""
        if self.strategy.has_foreign_devices:
            return self.strategy.first_component(self._buffer)
        return self.values[0]

    def _update_copy(self, copy: int, update: Update, operand: Any) -> None:
        components = list(self.values)
        components[copy] = apply_update(update, components[copy], self._cast(operand))
        self.commit_components(components)

    def _scatter_in_replica(self, trace: StepTrace, op: ScatterOp, slices: IndexedSlices) -> None:
        trace.store(self, scatter(op, trace.load(self), slices))

    def _scatter_per_copy(self, op: ScatterOp, slices: PerReplicaSlices) -> None:
        with self.strategy.lock:
            copies = zip(self.values, slices.values, strict=True)
            self._buffer = self.strategy.stack_copies([scatter(op, copy, rows) for copy, rows in copies])

    def _update_in_replica(self, trace: StepTrace, update: Update, operand: Any, what: str) -> None:
        trace.store(self, jnp.broadcast_to(update(trace.load(self), operand), self.shape))

    def _update_outside(self, update: Update, operand: Any, what: str) -> None:
        operands = operand.values if isinstance(operand, PerReplica) else [operand] * len(self.values)
        self._buffer = self.strategy.stack_copies(
            [apply_update(update, copy, self._cast(value)) for copy, value in zip(self.values, operands, strict=True)]
        )


class DivergingVariable(_StackedVariable, MirroredVariable):
    """A mirrored variable without aggregation: each replica changes its own copy, elsewhere copy 0 is read."""

    is_uniform = True

    def read_for_reduce(self) -> Any:
        return self.value if self.is_uniform else super().read_for_reduce()

    def _read(self) -> jax.Array:
        return self.values[0] if self.is_uniform else self._read_first()

    def note_divergence(self) -> None:
        if not self.is_uniform:
            return
        self.is_uniform = False
        warnings.warn(
            f"{self!r} has aggregation='none' and is written with a value per replica: its copies will differ, and "
            "outside the step replica 0's copy is read; choose aggregation='mean', 'sum' or 'only_first_replica'",
            DivergingCopiesWarning,
            stacklevel=2,
        )


class SyncOnReadVariable(_StackedVariable):
    """Each replica changes its own copy; reading outside the step aggregates them."""

    def _check_kind(self) -> None:
        _check_mean(self)

    def _scatter(self, op: ScatterOp, slices: Any) -> Self:
        raise UnsupportedError(f"scatter_{op} to {self!r}, which is synchronized on read; use 'on_write' or assign")

    def _read(self) -> jax.Array:
        if self.aggregation is VariableAggregation.NONE:
            raise InvalidValueError(
                f"{self!r} has one value per replica and aggregation='none'; read .values, or create it with "
                "aggregation='sum', 'mean' or 'only_first_replica'"
            )
        if self.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            return self._read_first()
        op = ReduceOp.parse(self.aggregation.name)
        return self.strategy.reduce_stacked(op, self._buffer)

    def _read_in(self, trace: StepTrace) -> jax.Array:
        local = super()._read_in(trace)
        if context.in_replica_context() or trace.num_replicas == 1:
            return local
        if self.aggregation is VariableAggregation.NONE:
            return self._read()
        total: jax.Array = aggregate(local, self.aggregation, trace.num_replicas)
        return total

    def _update_in_merge(self, trace: StepTrace, update: Update, operand: Any, what: str) -> None:
        operand = getattr(operand, "local", operand)
        if self.aggregation is VariableAggregation.SUM and trace.num_replicas > 1:
            self._refuse_unless_assign(update, what)
            operand = self._cast(operand) / np.asarray(trace.num_replicas, self.dtype)
        local = super()._read_in(trace)
        trace.store(self, jnp.broadcast_to(update(local, self._cast(operand)), self.shape))

    def restore(self, value: Any) -> None:
        super().restore(value)
        if self.aggregation is VariableAggregation.SUM:
            self._set_shares(jnp.asarray(value, self.dtype))

    def _update_outside(self, update: Update, operand: Any, what: str) -> None:
        if self.aggregation is VariableAggregation.SUM:
            self._refuse_unless_assign(update, what)
            if not isinstance(operand, PerReplica):
                self._set_shares(self._cast(operand))
                return
        super()._update_outside(update, operand, what)

    def _refuse_unless_assign(self, update: Update, what: str) -> None:
        if update is not replace_value:
            raise InvalidValueError(
                f"{what} to {self!r} outside a step: with aggregation='sum' it is not defined which copy takes it; "
                "use assign, or update inside run"
            )

    def _set_shares(self, total: Any) -> None:
        """Copies that sum up to ``total`` exactly: equal shares of floats; integers' rest goes to the first copies."""
        replicas = self.strategy.num_replicas_in_sync
        if jnp.issubdtype(self.dtype, jnp.inexact):
            shares = [total / np.asarray(replicas, self.dtype)] * replicas
        else:
            shares = [(total + replicas - 1 - r) // replicas for r in range(replicas)]
        self._buffer = self.strategy.stack_copies(
            [jnp.broadcast_to(jnp.asarray(shares[r], self.dtype), self.shape) for r in self.strategy.local_replicas]
        )


def _detach(slices: IndexedSlices) -> IndexedSlices:
    """The rows as arrays, without gradients."""
    return IndexedSlices(lax.stop_gradient(jnp.asarray(slices.values)), jnp.asarray(slices.indices))


def _check_mean(variable: Variable) -> None:
    if variable.aggregation is VariableAggregation.MEAN and not jnp.issubdtype(variable.dtype, jnp.inexact):
        raise InvalidValueError(
            f"aggregation='mean' needs a floating dtype, not {variable.dtype}; use 'sum', 'only_first_replica' or a "
            "floating dtype"
        )
