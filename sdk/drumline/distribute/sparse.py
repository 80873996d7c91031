"""Values at some rows of an array, and what they do to a variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drumline.distribute.errors import InvalidValueError

ScatterOp = Literal["add", "sub", "mul", "div", "min", "max", "update"]

#: Rows that do not exist are left out, negative ones too (JAX would count those from the end).
_DROP: dict[str, Any] = {"mode": "drop", "wrap_negative_indices": False}


@jax.tree_util.register_pytree_node_class
class IndexedSlices:
    """``values[i]`` belongs at row ``indices[i]`` of an array of shape ``dense_shape`` (rows may repeat).

    A row that does not exist is an InvalidValueError where indices are known (outside steps, constants); indices that
    a step computes can't be checked while it runs, and values at rows that do not exist are dropped.
    """

    def __init__(self, values: Any, indices: Any, dense_shape: tuple[int, ...] | None = None) -> None:
        self.values = values
        self.indices = indices
        self.dense_shape = dense_shape

    def to_dense(self, shape: tuple[int, ...] | None = None) -> jax.Array:
        """The array with zeros elsewhere; values of a repeated row add up."""
        values = jnp.asarray(self.values)
        shape = shape or self.dense_shape
        if shape is None:
            raise ValueError("IndexedSlices without dense_shape can't be made dense; pass the shape")
        return jnp.zeros(shape, values.dtype).at[self.rows_of(shape)].add(values, **_DROP)

    def rows_of(self, shape: tuple[int, ...]) -> jax.Array:
        """The indices, checked against an array of ``shape`` where they are known."""
        if not isinstance(self.indices, jax.core.Tracer):
            known = np.asarray(self.indices)
            wrong = known[(known < 0) | (known >= shape[0])]
            if wrong.size:
                raise InvalidValueError(f"row {wrong.flat[0]} does not exist: the array has {shape[0]} rows, from 0")
        return jnp.asarray(self.indices)

    def tree_flatten(self) -> tuple[tuple[Any, Any], tuple[int, ...] | None]:
        """Values and indices; the shape is part of the structure."""
        return (self.values, self.indices), self.dense_shape

    @classmethod
    def tree_unflatten(cls, dense_shape: tuple[int, ...] | None, children: tuple[Any, Any]) -> IndexedSlices:
        """The inverse of ``tree_flatten``."""
        return cls(*children, dense_shape)

    def __repr__(self) -> str:
        return f"IndexedSlices({jnp.shape(self.values)[:1]} rows of {self.dense_shape})"


def scatter(op: ScatterOp, current: Any, slices: IndexedSlices) -> jax.Array:
    """``current`` with the slices applied; of a repeated row every value is."""
    rows = slices.rows_of(jnp.shape(current))
    at = jnp.asarray(current).at[rows]
    values = jnp.asarray(slices.values, jnp.result_type(current))
    methods: dict[str, Callable[[Any], jax.Array]] = {
        "add": lambda v: at.add(v, **_DROP),
        "sub": lambda v: at.add(-v, **_DROP),
        "mul": lambda v: at.multiply(v, **_DROP),
        "div": lambda v: lax.div(jnp.asarray(current), jnp.ones_like(current).at[rows].multiply(v, **_DROP)),
        "min": lambda v: at.min(v, **_DROP),
        "max": lambda v: at.max(v, **_DROP),
        "update": lambda v: at.set(v, **_DROP),
    }
    return methods[op](values)


def touched_rows(slices: IndexedSlices, shape: tuple[int, ...]) -> jax.Array:
    """int32 [rows, 1, ...]: how often each row occurs; broadcasts against an array of ``shape``."""
    counts = jnp.zeros(shape[0], jnp.int32).at[slices.rows_of(shape)].add(np.int32(1), **_DROP)
    return counts.reshape(-1, *(1,) * (len(shape) - 1))


def combined(op: ScatterOp, current: Any, total: Any, touched: Any) -> jax.Array:
    """``current`` with the replicas' summed slices ``total`` applied to the rows any of them touched."""
    results: dict[str, Callable[[], Any]] = {
        "add": lambda: current + total,
        "sub": lambda: current - total,
        "mul": lambda: current * total,
        "div": lambda: lax.div(current, jnp.where(touched > 0, total, jnp.ones_like(total))),
    }
    return jnp.where(touched > 0, results[op](), current)
