"""Golden values to Python objects and back."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import drumline.distribute as dist

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def decode(value: Any) -> Any:
    """A tensor, structure, Python value or None. Numbers become jax arrays, strings numpy arrays.

    What JSON itself can say, a number or a list of such, stands for itself.
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return _decode_tensor(value)
    if "tuple" in value:
        return tuple(decode(item) for item in value["tuple"])
    if "list" in value:
        return [decode(item) for item in value["list"]]
    if "dict" in value:
        return {key: decode(item) for key, item in value["dict"].items()}
    if "namedtuple" in value:
        fields = value["namedtuple"]
        return namedtuple("Fields", fields)(**{key: decode(item) for key, item in fields.items()})
    if "python" in value:
        return value["python"]
    if value.get("none"):
        return None
    raise ValueError(f"{value!r} is no golden value")


def decode_array(value: Any) -> np.ndarray[Any, Any]:
    """A golden tensor as a numpy array."""
    array = _numpy(value["value"], value["dtype"])
    return array.reshape(value["shape"]) if "shape" in value else array


def array_of(value: Any, dtype: str) -> np.ndarray[Any, Any]:
    """A JSON list of numbers or texts as a numpy array."""
    return _numpy(value, dtype)


def encode(value: Any) -> Any:
    """What a program observed, as a golden value."""
    if isinstance(value, dist.PerReplica):
        return {"per_replica": [encode(item) for item in value.values]}
    if isinstance(value, dist.Mirrored):
        return {"mirrored": [encode(item) for item in value.values]}
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return _encode_tensor(value)
    if value is None:
        return {"none": True}
    if isinstance(value, (bool, int, float, str)):
        return {"python": value}
    return _encode_structure(value)


def encode_element(element: Any) -> Any:
    """An element of a dataset: its texts are tensors, too."""
    return encode(jax.tree.map(lambda leaf: np.asarray(leaf, object) if isinstance(leaf, str) else leaf, element))


def _encode_structure(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"namedtuple": {name: encode(getattr(value, name)) for name in value._fields}}
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return {"list": [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": {key: encode(item) for key, item in value.items()}}
    if isinstance(value, dist.Variable):
        return encode(value.value)
    return {"unknown": repr(value)}


def _decode_tensor(value: Any) -> Any:
    array = decode_array(value)
    return array if value["dtype"] == "string" else jnp.asarray(array)


def _numpy(value: Any, dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "string":
        return np.array(value, dtype=object)
    return np.array(_finite(value), dtype=jnp.dtype(dtype))


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _encode_tensor(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        texts = np.vectorize(lambda item: item.decode() if isinstance(item, bytes) else str(item), otypes=[object])
        listed = texts(array).tolist() if array.size else array.tolist()
        return {"dtype": "string", "shape": list(array.shape), "value": listed}
    wide = array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array
    return {"dtype": array.dtype.name, "shape": list(array.shape), "value": _named(wide.tolist())}


def _named(value: Any) -> Any:
    """Non-finite numbers by their golden names."""
    if isinstance(value, list):
        return [_named(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
