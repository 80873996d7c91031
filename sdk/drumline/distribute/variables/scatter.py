"""The scatter methods of a variable: updates of some of its rows."""

from __future__ import annotations

from typing import Any, Self

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.base.runtime import own_copy
from drumline.distribute.combine import reduction
from drumline.distribute.combine.combiners import InStepCombiner
from drumline.distribute.combine.scatter import ScatterOp, scatter
from drumline.distribute.contexts.step_trace import StepTrace
from drumline.distribute.errors import InvalidTypeError, UnsupportedError
from drumline.distribute.values.indexed_slices import IndexedSlices
from drumline.distribute.values.per_replica import Mirrored, PerReplicaSlices, join_slices
from drumline.distribute.variables.storage import StoredValue


class ScatterMethods:
    """Each takes the rows and their values. Slices of several replicas are aggregated as ``assign_add``'s deltas are;
    a row that several of them multiply or divide is so by each (by its share of the mean, for a mean).

    UnsupportedError for synchronization "on_read", and for min, max and update with aggregation "sum" or "mean".
    """

    def scatter_add(self, sparse_delta: IndexedSlices) -> Self:
        """Adds to rows."""
        return self._scatter("add", sparse_delta)

    def scatter_sub(self, sparse_delta: IndexedSlices) -> Self:
        """Subtracts from rows."""
        return self._scatter("sub", sparse_delta)

    def scatter_mul(self, sparse_delta: IndexedSlices) -> Self:
        """Multiplies rows."""
        return self._scatter("mul", sparse_delta)

    def scatter_div(self, sparse_delta: IndexedSlices) -> Self:
        """Divides rows."""
        return self._scatter("div", sparse_delta)

    def scatter_min(self, sparse_delta: IndexedSlices) -> Self:
        """Keeps the smaller of row and value."""
        return self._scatter("min", sparse_delta)

    def scatter_max(self, sparse_delta: IndexedSlices) -> Self:
        """Keeps the larger of row and value."""
        return self._scatter("max", sparse_delta)

    def scatter_update(self, sparse_delta: IndexedSlices) -> Self:
        """Replaces rows."""
        return self._scatter("update", sparse_delta)

    def _scatter(self, op: ScatterOp, slices: Any) -> Self:
        raise NotImplementedError


def rows_for_scatter(variable: StoredValue, op: ScatterOp, slices: Any) -> IndexedSlices | PerReplicaSlices:
    """The rows that a scatter method was given: this replica's, all replicas' the same, or one set per replica."""
    slices = join_slices(slices.value if isinstance(slices, Mirrored) else slices)
    slices = getattr(slices, "local", slices)  # of a step: this replica's
    if not isinstance(slices, (IndexedSlices, PerReplicaSlices)):
        raise InvalidTypeError(
            f"scatter_{op} to {variable!r} takes dist.IndexedSlices(values, indices), not {slices!r:.60}"
        )
    if isinstance(slices, PerReplicaSlices):
        return slices
    return IndexedSlices(own_copy(slices.values), own_copy(slices.indices), slices.dense_shape)


def scatter_into_one(variable: StoredValue, trace: StepTrace, op: ScatterOp, slices: IndexedSlices) -> None:
    """Every replica scatters into a variable of which there is one, without an aggregation."""
    if op not in ("add", "sub"):
        raise UnsupportedError(
            f"scatter_{op} from several replicas into {variable!r}, of which there is one: the order would matter; "
            "use scatter_add or scatter_sub, or make it in the strategy's scope"
        )
    slices.rows_of(variable.shape)  # refuses rows that are none, while they are known
    rows = reduction.reduce(InStepCombiner(trace), ReduceOp.SUM, IndexedSlices(slices.values, slices.indices))
    trace.store(variable, scatter(op, trace.load(variable), rows))
