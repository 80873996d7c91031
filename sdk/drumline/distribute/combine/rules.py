"""The table of combining rules: what becomes of the replicas' values, by what is asked and what they are.

A rule says it once wherever values come together: components on several devices, one stacked array, the programs of a
step. A ``Combiner`` does the two things that differ there: adding up arrays, and putting them one after the other. All
rules below are made of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.combine import reduction
from drumline.distribute.errors import InvalidTypeError, UnsupportedError
from drumline.distribute.values.indexed_slices import IndexedSlices, is_slices
from drumline.distribute.values.per_replica import PerReplica, PerReplicaSlices

#: reduce: over the replicas only; reduce_axes: over axes of each replica's array too; gather: one after the other
#: outside steps; all_gather: the same inside.
Action = Literal["reduce", "reduce_axes", "gather", "all_gather"]
#: dense: arrays; sparse: IndexedSlices; mixed: arrays of some replicas, IndexedSlices of others.
Kind = Literal["dense", "sparse", "mixed"]


class Combiner(Protocol):
    """Where the values of all replicas come together."""

    @property
    def num_replicas(self) -> int:
        """How many values come together."""

    def add(self, op: ReduceOp, value: Any, axis: Any) -> Any:
        """Sum or mean of arrays over the replicas, and over ``axis`` of each unless it is None."""

    def concatenate(self, value: Any, axis: int) -> Any:
        """The replicas' arrays one after the other along ``axis``."""


Rule = Callable[[Combiner, ReduceOp, Any, Any], Any]


def reduce(combiner: Combiner, op: ReduceOp, value: Any, axis: Any = None) -> Any:
    """Sum or mean over the replicas by ``combiner``; ``value`` is what it knows all replicas' values by."""
    return RULES["reduce" if axis is None else "reduce_axes", kind_of(value)](combiner, op, value, axis)


def gather(combiner: Combiner, value: Any, axis: int, action: Literal["gather", "all_gather"] = "gather") -> Any:
    """The replicas' values one after the other along ``axis``."""
    return RULES[action, kind_of(value)](combiner, ReduceOp.SUM, value, axis)


def kind_of(value: Any) -> Kind:
    """What the replicas' values are."""
    if isinstance(value, (IndexedSlices, PerReplicaSlices)):
        return "sparse"
    if type(value) is PerReplica and value.stacked is None and any(map(is_slices, value.values)):
        return "mixed"
    return "dense"


def _add(combiner: Combiner, op: ReduceOp, value: Any, axis: Any) -> Any:
    return combiner.add(op, value, axis)


def _join_rows(combiner: Combiner, op: ReduceOp, slices: Any, axis: Any) -> IndexedSlices:
    """All replicas' rows, replica 0's first, repeated rows and all; a mean divides their values by the replicas."""
    dense_shape = slices.dense_shape
    known = slices.known_components() if isinstance(slices, PerReplicaSlices) else [slices]
    for one in known:
        one.check_rows()
        if op is ReduceOp.MEAN:
            reduction.check_reducible(op, one.dtype)
    _check_same_dtype([one.dtype for one in known])
    values, indices = (combiner.concatenate(part, 0) for part in slices.parts())
    if op is ReduceOp.MEAN:
        values = reduction.divide(values, combiner.num_replicas)
    return IndexedSlices(values, indices, dense_shape)


def _concatenate(combiner: Combiner, op: ReduceOp, value: Any, axis: Any) -> Any:
    if type(value) is PerReplica and value.stacked is None:
        _check_same_dtype([np.result_type(one) if not hasattr(one, "dtype") else one.dtype for one in value.values])
    return combiner.concatenate(value, axis)


def _on_dense(rule: Rule) -> Rule:
    """The rule for arrays, applied to the arrays that rows stand for."""

    def apply(combiner: Combiner, op: ReduceOp, value: Any, axis: Any) -> Any:
        return rule(combiner, op, to_dense(value), axis)

    return apply


def _refuse_all_gather(combiner: Combiner, op: ReduceOp, value: Any, axis: Any) -> Any:
    raise UnsupportedError("all_gather of IndexedSlices; gather .to_dense(), or values and indices on their own")


RULES: dict[tuple[Action, Kind], Rule] = {
    ("reduce", "dense"): _add,
    ("reduce", "sparse"): _join_rows,
    ("reduce", "mixed"): _on_dense(_add),
    ("reduce_axes", "dense"): _add,
    ("reduce_axes", "sparse"): _on_dense(_add),
    ("reduce_axes", "mixed"): _on_dense(_add),
    ("gather", "dense"): _concatenate,
    ("gather", "sparse"): _on_dense(_concatenate),
    ("gather", "mixed"): _on_dense(_concatenate),
    ("all_gather", "dense"): _concatenate,
    ("all_gather", "sparse"): _refuse_all_gather,
}


def to_dense(value: Any) -> Any:
    """Rows as the arrays they stand for. Arrays of some replicas tell the shape to those with rows."""
    if isinstance(value, (IndexedSlices, PerReplicaSlices)):
        return value.to_dense()
    shape = next(np.shape(one) for one in value.values if not is_slices(one))
    return value.map(lambda one: one.to_dense(shape) if is_slices(one) else one)


def _check_same_dtype(dtypes: list[Any]) -> None:
    if len(set(dtypes)) > 1:
        shown = ", ".join(map(str, dtypes))
        raise InvalidTypeError(f"components of different dtypes can't be put together: {shown}; cast them first")
