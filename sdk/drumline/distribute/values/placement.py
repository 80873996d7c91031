"""Moves host values and plain arrays onto a strategy's devices, without silent loss."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from drumline.distribute.base.trace_state import is_abstract, x64_enabled
from drumline.distribute.errors import InvalidTypeError, InvalidValueError

_NARROW = {np.dtype(np.int64): np.iinfo(np.int32), np.dtype(np.uint64): np.iinfo(np.uint32)}


def check_host_array(value: Any) -> np.ndarray[Any, Any]:
    """``value`` as a numpy array that JAX can hold.

    Raises InvalidValueError for a 64-bit integer that does not fit 32 bits while ``jax_enable_x64`` is off (JAX would
    wrap it silently), InvalidTypeError for strings and objects.
    """
    array = np.asarray(value)
    if array.dtype.kind in "OSUM" or array.dtype.kind == "m":
        raise InvalidTypeError(f"a value of dtype {array.dtype} ({value!r:.60}) cannot be placed on a device")
    limits = _NARROW.get(array.dtype)
    if limits is not None and array.size and not x64_enabled():
        extreme = array.max() if array.max() > limits.max else array.min()
        if extreme > limits.max or extreme < limits.min:
            raise InvalidValueError(
                f"{array.dtype} value {extreme} does not fit {limits.dtype}; "
                "jax.config.update('jax_enable_x64', True) keeps 64-bit integers"
            )
    return array


def put(array: Any, where: Any) -> jax.Array:
    """``jax.device_put`` of one array, typed. Of a program that runs on shapes nothing lies anywhere."""
    if is_abstract():
        return jax.numpy.asarray(array)
    placed: jax.Array = jax.device_put(array, where)
    return placed


def refuse_deleted(values: Sequence[Any]) -> None:
    """RuntimeError where one of ``values`` is an array whose memory was given away, DonatedError where by us.

    A compiled program that is called with one on several CPU devices ends the process (JAX 0.10.2).
    """
    try:
        if is_abstract() or True not in map(_is_deleted, values):
            return
    except AttributeError:  # a Python number among them
        pass
    for value in values:
        if isinstance(value, jax.Array) and value.is_deleted():
            np.asarray(value)  # says so


_is_deleted = operator.methodcaller("is_deleted")


def own_copy(value: Any) -> Any:
    """The copy that this process has of an array that several have whole; any other value as it is."""
    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) and not value.is_fully_addressable:
        return value.addressable_data(0) if value.is_fully_replicated else value
    return value


def copy_if_host(value: Any) -> Any:
    """A copy of a host array, other values as they are.

    JAX reads host memory later or shares it, and the caller may change it as soon as he has control again.
    """
    return np.array(value) if isinstance(value, np.ndarray) else value


class ReplicatedArrays:
    """Replicates plain arrays over a strategy's devices, once per array: cached by identity while the array lives."""

    def __init__(self, sharding: Sharding, replicate: Callable[[Any], jax.Array]) -> None:
        self.sharding = sharding
        self._replicate = replicate
        self._replicated: dict[int, tuple[weakref.ref[jax.Array], jax.Array]] = {}

    def place_own(self, value: Any) -> Any:
        """``value`` on every device, for a program that keeps it: no other call gets the same array."""
        if isinstance(value, jax.Array):
            return value if is_abstract() or value.sharding == self.sharding else self._replicate(value)
        return self.place(value)

    def place(self, value: Any) -> Any:
        """``value`` on every device; host arrays are placed again each time, since they can change in place."""
        if is_abstract():
            return value
        if isinstance(value, jax.Array):
            if value.sharding == self.sharding:
                return value
            key = id(value)  # an array has no hash, and == compares its elements
            hit = self._replicated.get(key)
            if hit is not None and hit[0]() is value:
                return hit[1]
            placed = self._replicate(value)
            self._replicated[key] = (weakref.ref(value, lambda _: self._replicated.pop(key, None)), placed)
            return placed
        if isinstance(value, (np.ndarray, np.generic)):
            return self._replicate(copy_if_host(check_host_array(value)))
        return value  # a Python scalar: jit replicates it by itself and keeps it weakly typed
