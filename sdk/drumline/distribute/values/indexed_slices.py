"""Values at some rows of an array, as the gradient of an embedding look-up is."""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.errors import InvalidTypeError, InvalidValueError

#: Rows that do not exist are left out, negative ones too (JAX would count those from the end).
DROP: dict[str, Any] = {"mode": "drop", "wrap_negative_indices": False}


@jax.tree_util.register_pytree_node_class
class IndexedSlices:
    """``values[i]`` belongs at row ``indices[i]`` of an array of shape ``dense_shape`` (rows may repeat).

    A row that does not exist is an InvalidValueError where indices are known (outside steps, constants); indices that
    a step computes can't be checked while it runs, and values at rows that do not exist are dropped.
    """

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values = np.asarray(values) if isinstance(values, (list, tuple)) else values
        self.indices = np.asarray(indices) if isinstance(indices, (list, tuple)) else indices
        self.dense_shape: tuple[int, ...] | None = None if dense_shape is None else _known_shape(dense_shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype if hasattr(self.values, "dtype") else np.asarray(self.values).dtype

    def parts(self) -> tuple[Any, Any]:
        """Values and indices."""
        return self.values, self.indices

    def to_dense(self, shape: tuple[int, ...] | None = None) -> jax.Array:
        """The array with zeros elsewhere; values of a repeated row add up.

        ``shape`` is needed where ``dense_shape`` is None. InvalidValueError if values and indices don't fit it.
        """
        shape = self.shape_for(shape)
        values = jnp.asarray(self.values)
        return jnp.zeros(shape, values.dtype).at[self.rows_of(shape)].add(values, **DROP)

    def shape_for(self, shape: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The shape of the array these rows belong to: ``shape``, if it is given."""
        if shape is None:
            shape = self.dense_shape
        if shape is None:
            raise InvalidValueError("IndexedSlices without dense_shape can't be made dense; pass the shape")
        if self.dense_shape is not None and self.dense_shape != tuple(shape):
            raise InvalidValueError(f"{self!r} does not fit an array of shape {list(shape)}")
        return tuple(shape)

    def rows_of(self, shape: tuple[int, ...]) -> jax.Array:
        """The indices, checked against the values, and against an array of ``shape`` where they are known."""
        if jnp.ndim(self.values):  # one number may stand for all rows
            self.check_rows()
        if jnp.ndim(self.values) and jnp.shape(self.values)[1:] != tuple(shape[1:]):
            raise InvalidValueError(
                f"rows of shape {list(jnp.shape(self.values)[1:])} don't fit an array of shape {list(shape)}"
            )
        if not isinstance(self.indices, jax.core.Tracer):
            known = np.asarray(self.indices)
            wrong = known[(known < 0) | (known >= shape[0])]
            if wrong.size:
                raise InvalidValueError(f"row {wrong.flat[0]} does not exist: the array has {shape[0]} rows, from 0")
        return jnp.asarray(self.indices)

    def check_rows(self) -> None:
        """InvalidValueError unless there is one index for each row of values; InvalidTypeError for no integers."""
        values, indices = np.shape(self.values), np.shape(self.indices)
        if len(indices) != 1 or values[:1] != indices:
            raise InvalidValueError(
                f"IndexedSlices needs one index per row: values have the shape {list(values)}, indices {list(indices)}"
            )
        if np.size(self.indices) and not jnp.issubdtype(jnp.result_type(self.indices), jnp.integer):
            raise InvalidTypeError(f"indices of dtype {jnp.result_type(self.indices)} name no rows; use integers")

    def tree_flatten(self) -> tuple[tuple[Any, Any], tuple[int, ...] | None]:
        """Values and indices; the shape is part of the structure."""
        return (self.values, self.indices), self.dense_shape

    @classmethod
    def tree_unflatten(cls, dense_shape: tuple[int, ...] | None, children: tuple[Any, Any]) -> IndexedSlices:
        """The inverse of ``tree_flatten``."""
        slices = cls.__new__(cls)  # as it was taken apart: JAX puts any object in place of an array
        slices.values, slices.indices = children
        slices.dense_shape = dense_shape
        return slices

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-jnp.asarray(self.values), self.indices, self.dense_shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.to_dense(), dtype)

    def __repr__(self) -> str:
        whole = "an array" if self.dense_shape is None else f"[{', '.join(map(str, self.dense_shape))}]"
        return f"IndexedSlices({_describe(self.values)} at rows {_describe(self.indices)} of {whole})"


def is_slices(node: Any) -> bool:
    """Tells IndexedSlices; ``jax.tree`` functions that are given it as ``is_leaf`` don't look into them."""
    return isinstance(node, IndexedSlices)


def _known_shape(shape: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(extent) for extent in shape)
    except (TypeError, jax.errors.JAXTypeError):
        raise InvalidTypeError(
            f"dense_shape={shape!r:.60} is part of the program: pass a tuple of ints, such as table.shape"
        ) from None


def _describe(part: Any) -> str:
    if hasattr(part, "shape") and hasattr(part, "dtype"):
        return f"{np.dtype(part.dtype).name}{list(part.shape)}"
    return repr(part)
