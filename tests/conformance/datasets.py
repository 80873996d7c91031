"""The datasets that cases describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import drumline.distribute as dist
from conformance.codec import array_of

_MAPS: dict[str, Callable[..., Any]] = {
    "add_one": lambda x: x + np.asarray(1, x.dtype),
    "to_pair": lambda x: (x, x * np.asarray(10, x.dtype)),
    "to_dict": lambda x: {"x": x, "2x": x * np.asarray(2, x.dtype)},
    "cast_float32": lambda x: x.astype(np.float32),
}


def build_dataset(description: dict[str, Any]) -> Any:
    """A Dataset from a golden description."""
    return apply_ops(_source(description["source"]), description)


def apply_ops(dataset: Any, description: dict[str, Any]) -> Any:
    """The operations and the policy of a description on top of any dataset."""
    for name, *arguments in description.get("ops", []):
        operands = [_MAPS[arguments[0]]] if name == "map" else arguments
        dataset = getattr(dataset, name)(*operands)
    policy = description.get("auto_shard_policy")
    return dataset if policy is None else dataset.with_auto_shard_policy(policy)


def _source(source: dict[str, Any]) -> Any:
    if "range" in source:
        return dist.Dataset.range(source["range"])
    if "slices" in source:
        return dist.Dataset.from_tensor_slices(array_of(source["slices"], source["dtype"]))
    if "slices_tuple" in source:
        pairs = zip(source["slices_tuple"], source["dtypes"], strict=True)
        return dist.Dataset.from_tensor_slices(tuple(array_of(values, dtype) for values, dtype in pairs))
    if "slices_dict" in source:
        dtypes = source["dtypes"]
        arrays = {key: array_of(values, dtypes[key]) for key, values in source["slices_dict"].items()}
        return dist.Dataset.from_tensor_slices(arrays)
    if "batches" in source:
        batches = [array_of(values, source["dtype"]) for values in source["batches"]]
        return dist.Dataset.from_generator(lambda: iter(batches))
    raise ValueError(f"unknown source {source!r}")
