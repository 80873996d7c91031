"""Arrays as a grain dataset of rows, whose batches are slices of the whole array and never stacked row by row.

What is given out is a copy: placing on a CPU device may alias host memory, and a program that changes its arrays in
place between epochs would change batches that steps still read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import grain
import jax
import numpy as np

from drumline.distribute.errors import InvalidValueError


@dataclass(frozen=True)
class RowOrder:
    """Which row stands at each position when ``rows`` rows follow each other ``epochs`` times (None: endlessly).

    With a seed every epoch has an order of its own, drawn from seed and epoch.
    """

    rows: int
    epochs: int | None = 1
    seed: int | None = None

    def __len__(self) -> int:
        if self.epochs is None:
            return sys.maxsize if self.rows else 0
        return min(sys.maxsize, self.rows * self.epochs)

    def pick(self, first: int, size: int) -> slice | np.ndarray[Any, np.dtype[np.int64]]:
        """The rows at positions ``first`` to ``first + size``, as a slice where they lie side by side."""
        epoch, start = divmod(first, self.rows)
        if self.seed is None:
            if start + size <= self.rows:
                return slice(start, start + size)
            return np.arange(start, start + size) % self.rows
        parts = []
        while size:
            part = _permutation(self.rows, self.seed, epoch)[start : start + size]
            parts.append(part)
            size, start, epoch = size - len(part), 0, epoch + 1
        return np.concatenate(parts)


@lru_cache(maxsize=4)
def _permutation(rows: int, seed: int, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng([seed, epoch]).permutation(rows)


class ArrayRows(grain.MapDataset[Any]):
    """Element i is the row at position i of ``order`` of every array in the nest."""

    def __init__(self, arrays: Any, order: RowOrder | None = None) -> None:
        super().__init__()
        self.arrays = arrays
        self.order = order or RowOrder(len(jax.tree.leaves(arrays)[0]))

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        return jax.tree.map(lambda rows: rows[0], _copy_rows(self.arrays, self.order, index, 1))

    def slice(self, sl: slice) -> grain.MapDataset[Any]:
        """The rows of ``sl``, as views while they stand in their first order."""
        if self.order.epochs != 1 or self.order.seed is not None:
            return super().slice(sl)
        return ArrayRows(jax.tree.map(lambda array: array[sl], self.arrays))

    def batches(self, rows: int, *, drop_remainder: bool) -> ArrayBatches:
        """Consecutive runs of ``rows`` rows, also across the end of an epoch."""
        return ArrayBatches(self.arrays, self.order, rows, drop_remainder)


class ArrayBatches(grain.MapDataset[Any]):
    """Element i is the rows at positions [i*n, (i+1)*n) of every array in the nest."""

    def __init__(self, arrays: Any, order: RowOrder, size: int, drop_remainder: bool) -> None:
        super().__init__()
        self._arrays = arrays
        self._order = order
        self._size = size
        self._count = len(order) // size if drop_remainder else -(-len(order) // size)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        first = (index % self._count) * self._size
        return _copy_rows(self._arrays, self._order, first, min(self._size, len(self._order) - first))


def _copy_rows(arrays: Any, order: RowOrder, first: int, size: int) -> Any:
    picked = order.pick(first, size)
    if isinstance(picked, slice):
        return jax.tree.map(lambda array: array[picked].copy(), arrays)
    return jax.tree.map(lambda array: array[picked], arrays)


def stack_elements(elements: Sequence[Any]) -> Any:
    """Elements of equal shape stacked on a new first axis; ValueError naming the shapes where they differ."""
    try:
        return jax.tree.map(lambda *leaves: np.stack(leaves), *elements)
    except ValueError:
        raise InvalidValueError(
            f"elements of shape {_shapes(elements)} can't be stacked to one batch; "
            "use padded_batch, or map them to one shape"
        ) from None


def join_rows(elements: Sequence[Any]) -> Any:
    """The rows of several batches as one; ValueError naming the shapes where rows differ in theirs."""
    if len(elements) == 1:
        return elements[0]
    try:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *elements)
    except ValueError:
        raise InvalidValueError(
            f"batches of shape {_shapes(elements)} can't share a step, since their rows differ; "
            "with auto-shard policy DATA every batch is divided on its own"
        ) from None


def _shapes(elements: Sequence[Any]) -> str:
    each = (", ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves(element)) for element in elements)
    return " and ".join(dict.fromkeys(each))


def pad_and_stack(elements: Sequence[Any]) -> Any:
    """Elements of one rank stacked on a new first axis, shorter ones padded at the end with zeros or empty strings."""

    def stack(*leaves: Any) -> np.ndarray[Any, Any]:
        arrays = [np.asarray(leaf) for leaf in leaves]
        shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True))
        padded = np.zeros((len(arrays), *shape), arrays[0].dtype)
        if arrays[0].dtype == object:
            padded.fill(b"" if isinstance(next(iter(arrays[0].flat), b""), bytes) else "")
        for row, array in zip(padded, arrays, strict=True):
            row[tuple(slice(size) for size in array.shape)] = array
        return padded

    return jax.tree.map(stack, *elements)


def leading_rows(element: Any) -> int:
    """The rows that all leaves of a batch have; ValueError for scalars and for leaves that differ."""
    leaves = jax.tree.leaves(element)
    shapes = [np.shape(leaf) for leaf in leaves]
    if not shapes or not all(shapes):
        raise InvalidValueError(
            f"an element with leaves of shape {', '.join(map(str, shapes)) or 'none'} has no rows to divide; "
            "batch the dataset first: dataset.batch(global_batch)"
        )
    rows = {shape[0] for shape in shapes}
    if len(rows) > 1:
        raise InvalidValueError(
            f"the leaves of one batch have {' and '.join(str(shape[0]) for shape in shapes)} rows; "
            "every leaf of a batch needs the same number"
        )
    return int(rows.pop())
