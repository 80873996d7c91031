"""What becomes of the replicas' values: the table of combining rules, and the arithmetic that they are made of.

A rule says by what is asked and what the values are what becomes of them, once wherever they come together: components
on several devices, one stacked array, the programs of a step. A ``Combiner`` does the two things that differ there:
adding up arrays, and putting them one after the other. All rules are made of these.

A mean over ``axis`` divides the total sum by the total count of elements of all replicas, so that ragged and empty
replicas are weighted as they should: 0..5 split 4 + 2 has the mean 2.5, not 3.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.base.runtime import check_host_array, is_abstract
from drumline.distribute.combine.primitives import divide_exactly, exact_quotient
from drumline.distribute.errors import InvalidTypeError, InvalidValueError, NoSumError, UnsupportedError
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
            check_reducible(op, one.dtype)
    _check_same_dtype([one.dtype for one in known])
    values, indices = (combiner.concatenate(part, 0) for part in slices.parts())
    if op is ReduceOp.MEAN:
        values = divide(values, combiner.num_replicas)
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


Axis = int | tuple[int, ...] | None


def normalize_axis(axis: Any, rank: int) -> tuple[int, ...] | None:
    """None, or the axes as non-negative ints; InvalidValueError if one is out of range."""
    if axis is None:
        return None
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for one in axes:
        if not isinstance(one, (int, np.integer)):
            raise InvalidTypeError(f"axis={axis!r}: an axis is None, an int or a tuple of ints")
        if not -rank <= one < rank:
            raise InvalidValueError(f"axis={axis!r} is out of range for a value of rank {rank}")
    normal = tuple(sorted({int(one) % rank for one in axes}))
    if len(normal) != len(axes):
        raise InvalidValueError(f"axis={axis!r} names an axis twice")
    return normal


def check_reducible(op: ReduceOp, dtype: Any) -> None:
    """Bools and strings can't be added (NoSumError) or averaged (InvalidTypeError)."""
    kind = np.dtype(dtype).kind if not jnp.issubdtype(dtype, jax.dtypes.extended) else "O"
    if kind in "bOSUT":
        error = NoSumError if op is ReduceOp.SUM else InvalidTypeError
        raise error(f"a value of dtype {dtype} has no {op.name.lower()}; cast it to a number first")


def mean_dtype(dtype: Any) -> Any:
    """The dtype of a mean: floats stay, 8- and 16-bit integers give float32, wider ones float64 where x64 is on."""
    dtype = jnp.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.inexact):
        return dtype
    return jnp.dtype(jnp.float32) if dtype.itemsize <= 2 else jax.dtypes.canonicalize_dtype(np.float64)


def divide(total: Any, count: Any) -> Any:
    """``total / count`` in the dtype a mean has; 0 / 0 is NaN."""
    dtype = mean_dtype(total.dtype)
    wide = dtype if dtype.itemsize > 2 else jnp.dtype(jnp.float32)
    total = total.astype(wide)
    return (exact_quotient(total, count) if isinstance(count, int) else divide_exactly(total, count)).astype(dtype)


def sum_over(value: Any, axes: tuple[int, ...] | None) -> Any:
    """Sum over ``axes`` that keeps the dtype (and wraps as integers do)."""
    return value if axes is None else jnp.sum(value, axis=axes, dtype=value.dtype)


def reduce_stacked(op: ReduceOp, array: jax.Array, axis: Axis) -> jax.Array:
    """Reduces [replicas, *shape] over replicas and ``axis`` of ``shape``; the result is on every device."""
    check_reducible(op, array.dtype)
    axes = normalize_axis(axis, array.ndim - 1)
    return _stacked_fn(op, axes, None if is_abstract() else array.sharding)(array)


@lru_cache(maxsize=256)
def _stacked_fn(op: ReduceOp, axes: tuple[int, ...] | None, sharding: Any) -> Callable[[jax.Array], jax.Array]:
    def reduce(array: jax.Array) -> jax.Array:
        local = sum_over(array, None if axes is None else tuple(axis + 1 for axis in axes))
        total = jnp.sum(local, axis=0, dtype=array.dtype)
        count = array.shape[0] * (1 if axes is None else math.prod(array.shape[axis + 1] for axis in axes))
        return divide(total, count) if op is ReduceOp.MEAN else total

    if not isinstance(sharding, NamedSharding):
        return jax.jit(reduce)
    return jax.jit(reduce, out_shardings=NamedSharding(sharding.mesh, PartitionSpec()))


def reduce_components(op: ReduceOp, values: Sequence[Any], axis: Axis, home: jax.Device) -> jax.Array:
    """Reduces one component per replica; shapes may differ along ``axis``. The result is on ``home``."""
    arrays = [value if isinstance(value, jax.Array) else np.asarray(value) for value in values]
    for array in arrays:
        check_reducible(op, array.dtype)
    arrays = [array if isinstance(array, jax.Array) else check_host_array(array) for array in arrays]
    if len({array.dtype for array in arrays}) > 1:
        raise InvalidTypeError(f"components of different dtypes can't be reduced: {_shapes(arrays)}; cast them first")
    if len({array.ndim for array in arrays}) > 1:
        raise InvalidValueError(f"components of different rank can't be reduced: {_shapes(arrays)}")
    axes = normalize_axis(axis, arrays[0].ndim)
    rest = {tuple(n for i, n in enumerate(array.shape) if i not in (axes or ())) for array in arrays}
    if len(rest) > 1:
        raise InvalidValueError(
            f"components of different shapes can't be added: {_shapes(arrays)}; pass the axis they differ in "
            "(axis=0 for a ragged batch)"
        )
    partial = [_partial_fn(axes)(array) for array in arrays]
    total: jax.Array = _add_all(jax.device_put(partial, home))
    if op is ReduceOp.MEAN:
        total = _divide(total, np.float64(sum(counts(arrays, axes))))
    return total


def counts(arrays: Sequence[Any], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    """How many elements each replica contributes to one element of the result."""
    return counts_of_shapes([array.shape for array in arrays], axes)


def counts_of_shapes(shapes: Sequence[tuple[int, ...]], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    """The same from the replicas' shapes."""
    return tuple(1 if axes is None else math.prod(shape[axis] for axis in axes) for shape in shapes)


def concatenate(values: Sequence[Any], axis: int, home: jax.Device) -> Any:
    """Components one after the other along ``axis``, in replica order; other extents must agree."""
    arrays = [value if isinstance(value, jax.Array) else np.asarray(value) for value in values]
    check_concatenable([array.shape for array in arrays], axis)
    if any(array.dtype.kind in "OSUT" for array in arrays):
        return np.concatenate([np.asarray(array) for array in arrays], axis)
    arrays = [array if isinstance(array, jax.Array) else check_host_array(array) for array in arrays]
    return jnp.concatenate(jax.device_put(arrays, home), axis)


def check_concatenable(shapes: Sequence[tuple[int, ...]], axis: int) -> None:
    """InvalidValueError unless arrays of these shapes can be put together along ``axis``."""
    rank = len(shapes[0])
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise InvalidTypeError(f"axis={axis!r}: values are gathered along one axis, an int")
    shown = ", ".join(str(list(shape)) for shape in shapes)
    if rank == 0:
        raise InvalidValueError("scalars can't be gathered along an axis; reshape them to [1] first")
    if any(len(shape) != rank for shape in shapes):
        raise InvalidValueError(f"components of different rank can't be gathered: {shown}")
    (axis,) = normalize_axis(int(axis), rank) or (0,)
    if len({shape[:axis] + shape[axis + 1 :] for shape in shapes}) > 1:
        raise InvalidValueError(f"components may differ along axis {axis} only, to be gathered: {shown}")


@lru_cache(maxsize=64)
def _partial_fn(axes: tuple[int, ...] | None) -> Callable[[Any], jax.Array]:
    return jax.jit(lambda value: sum_over(value, axes))


@jax.jit
def _add_all(values: list[jax.Array]) -> jax.Array:
    total = values[0]
    for value in values[1:]:
        total = lax.add(total, value)
    return total


@jax.jit
def _divide(total: jax.Array, count: jax.Array) -> jax.Array:
    return jnp.asarray(divide(total, count))


def describe(array: Any) -> str:
    """Dtype and shape, for messages."""
    return f"{array.dtype}{list(array.shape)}"


def _shapes(arrays: Sequence[Any]) -> str:
    return ", ".join(map(describe, arrays))
