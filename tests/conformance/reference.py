"""What sane results are where TensorFlow's are not, computed by numpy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import drumline.distribute as dist
from conformance.codec import decode, encode


def reduced(inputs: dict[str, Any]) -> Any:
    """Every leaf summed over its axes and over replicas; a mean divides by the number of elements."""
    axes = inputs["axis"]
    axis = () if axes is None else tuple(axes) if isinstance(axes, list) else axes
    mean = inputs["reduce_op"].upper() == "MEAN"

    def reduce_leaf(*leaves: Any) -> Any:
        arrays = [np.asarray(leaf) for leaf in leaves]
        total = np.sum([array.sum(axis=axis, dtype=np.float64) for array in arrays], axis=0)
        counted = sum(array.size / max(array.sum(axis=axis).size, 1) for array in arrays)
        return np.asarray(total / counted if mean else total).astype(arrays[0].dtype)

    return encode(jax.tree.map(reduce_leaf, *(decode(value) for value in inputs["value"])))


def gathered(inputs: dict[str, Any]) -> Any:
    """Every leaf's components one after the other."""
    axis = inputs["axis"]

    def gather_leaf(*leaves: Any) -> Any:
        return np.concatenate([np.asarray(leaf) for leaf in leaves], axis)

    return encode(jax.tree.map(gather_leaf, *(decode(value) for value in inputs["value"])))


def collected(step_fn: str, values: list[Any]) -> Any:
    """What a collective gives every replica: the replicas' values gathered, summed or averaged, leaf by leaf."""

    def collect_leaf(*leaves: Any) -> Any:
        arrays = [np.asarray(leaf) for leaf in leaves]
        if step_fn.startswith("all_gather"):
            result = np.concatenate(arrays, int(step_fn[-1]))
        else:
            result = np.sum(arrays, axis=0, dtype=arrays[0].dtype)
        if step_fn in ("all_reduce_mean", "all_reduce_sum_then_divide"):
            result = result / np.asarray(len(arrays), mean_dtype(result.dtype))
        return result if len(arrays) == 1 else dist.PerReplica.from_components([result] * len(arrays))

    return encode(jax.tree.map(collect_leaf, *(decode(value) for value in values)))


def mean_dtype(dtype: Any) -> Any:
    """Floats stay; a mean of integers is a float32 if they are narrow, else a float64."""
    return dtype if dtype.kind not in "iu" else np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
