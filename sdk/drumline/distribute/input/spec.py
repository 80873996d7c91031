"""Static descriptions of elements: shapes with unknown dimensions, and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from drumline.distribute.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of one leaf; None stands for a dimension that may differ between elements."""

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return None not in self.shape

    def with_rows(self, rows: int | None) -> ArraySpec:
        """The same leaf with another leading dimension."""
        return ArraySpec((rows, *self.shape[1:]), self.dtype)


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """A leaf that is a dataset (of a window, for instance): the specs of its elements."""

    element_spec: Any

    @property
    def shape(self) -> tuple[int | None, ...]:
        """A dataset is one thing."""
        return ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """No array holds datasets."""
        return np.dtype(object)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return True


def is_dataset(leaf: Any) -> bool:
    """Whether a leaf of an element is a dataset itself."""
    return hasattr(leaf, "element_spec")


@dataclass(frozen=True, slots=True)
class PerReplicaSpec:
    """One spec per replica, replica 0 first."""

    specs: tuple[Any, ...]


def spec_of(element: Any) -> Any:
    """The nest of specs of a nest of arrays."""
    return jax.tree.map(leaf_spec, element)


def leaf_spec(leaf: Any) -> ArraySpec | DatasetSpec:
    """The spec of one array (or of what numpy makes of a Python value), or of one dataset."""
    if is_dataset(leaf):
        return DatasetSpec(leaf.element_spec)
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return ArraySpec(tuple(leaf.shape), np.dtype(leaf.dtype))
    array = np.asarray(leaf)
    return ArraySpec(array.shape, array.dtype)


def batch_spec(spec: Any, rows: int | None) -> Any:
    """The specs after stacking ``rows`` elements (None: not always the same number)."""
    return jax.tree.map(lambda leaf: ArraySpec((rows, *leaf.shape), leaf.dtype), spec)


def unbatch_spec(spec: Any) -> Any:
    """The specs of the rows of such elements; ValueError for elements without rows."""
    if any(not leaf.shape for leaf in jax.tree.leaves(spec)):
        raise InvalidValueError("unbatch() takes the rows of every element, but scalars have none; batch them first")
    return jax.tree.map(lambda leaf: ArraySpec(leaf.shape[1:], leaf.dtype), spec)


def static_rows(spec: Any) -> int | None:
    """The leading dimension that all leaves have in common, -1 where they contradict, None where one is unknown."""
    leading = {leaf.shape[0] if leaf.shape else None for leaf in jax.tree.leaves(spec)}
    if None in leading or not leading:
        return None
    return leading.pop() if len(leading) == 1 else -1


def per_replica_spec(spec: Any, replicas: int) -> Any:
    """What each replica sees of elements of the global batch: rows are static where they always divide evenly.

    ValueError for scalars, which can't be divided.
    """
    if replicas == 1:
        return spec

    def divide(leaf: ArraySpec) -> PerReplicaSpec:
        if not leaf.shape:
            raise InvalidValueError(
                f"an element with a scalar of {leaf.dtype} has no rows to divide over {replicas} replicas; "
                "batch the dataset first: dataset.batch(global_batch)"
            )
        rows = leaf.shape[0]
        own = leaf.with_rows(rows // replicas if rows is not None and rows % replicas == 0 else None)
        return PerReplicaSpec((own,) * replicas)

    return jax.tree.map(divide, spec)


def repeat_spec(spec: Any, replicas: int) -> Any:
    """What each replica sees when it takes whole elements of its own."""
    if replicas == 1:
        return spec
    return jax.tree.map(lambda leaf: PerReplicaSpec((leaf,) * replicas), spec)


def map_spec(fn: Callable[[Any], Any], spec: Any, example: Any) -> Any:
    """The specs of ``fn(element)``, found by running ``fn`` on an example, and once more on one of another size.

    A dimension is static if it doesn't move when the unknown dimensions of the input do.
    """
    return spec_of_result(lambda element: spec_of(fn(element)), spec, example)


def spec_of_result(describe: Callable[[Any], Any], spec: Any, example: Any) -> Any:
    """What ``describe`` tells of an example, less the dimensions that move when the unknown ones of the input do."""
    result = describe(example)
    if all(leaf.is_static for leaf in jax.tree.leaves(spec)):
        return result
    return jax.tree.map(merge_specs, result, describe(jax.tree.map(_add_axis, example, spec)))


def _add_axis(leaf: Any, spec: ArraySpec | DatasetSpec) -> Any:
    """The leaf with each unknown dimension doubled (an empty one gets one zero row)."""
    if is_dataset(leaf):
        return leaf
    leaf = np.asarray(leaf)
    for axis, size in enumerate(spec.shape):
        if size is None:
            if leaf.shape[axis]:
                leaf = np.concatenate([leaf, leaf], axis)
            else:
                leaf = np.zeros((*leaf.shape[:axis], 1, *leaf.shape[axis + 1 :]), leaf.dtype)
    return leaf


def merge_specs(one: Any, other: Any) -> Any:
    """What two leaves of one rank have in common: dimensions that differ are unknown."""
    if isinstance(one, DatasetSpec):
        return one
    dtype = one.dtype if one.dtype == other.dtype else np.result_type(one.dtype, other.dtype)
    if len(one.shape) != len(other.shape):
        return ArraySpec((None,) * len(one.shape), dtype)
    return ArraySpec(tuple(a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)), dtype)
