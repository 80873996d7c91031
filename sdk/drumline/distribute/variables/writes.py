"""What becomes of the values given to a variable: casts, copies, updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drumline.distribute.base.runtime import check_host_array, copy_if_host, is_tracing, own_copy, put
from drumline.distribute.errors import CutOffError, InvalidValueError, VariableScopeError
from drumline.distribute.values.indexed_slices import IndexedSlices, is_slices
from drumline.distribute.values.operators import ArrayOperators
from drumline.distribute.values.per_replica import Mirrored, PerReplica, PerReplicaSlices

Update = Callable[[Any, Any], Any]


def cast_for(variable: object, operand: Any, dtype: Any) -> Any:
    """``operand`` in the variable's dtype; CutOffError where a fraction would be cut off."""
    operand = own_copy(operand.value if isinstance(operand, ArrayOperators) else operand)
    if isinstance(operand, jax.Array) and operand.dtype == dtype:
        return operand
    is_number = isinstance(operand, (int, float, complex))
    source = operand if is_number or isinstance(operand, jax.Array) else copy_if_host(check_host_array(operand))
    kind = jnp.result_type(source)
    if jnp.issubdtype(kind, jnp.inexact) and not jnp.issubdtype(dtype, jnp.inexact):
        raise CutOffError(f"{variable!r} holds {dtype}; a {kind} value would be cut off: cast it first")
    if jnp.issubdtype(kind, jnp.complexfloating) and not jnp.issubdtype(dtype, jnp.complexfloating):
        raise CutOffError(f"{variable!r} holds {dtype}; the imaginary part of a {kind} value would be cut off")
    if dtype == jnp.bool_ and kind != jnp.bool_:
        raise CutOffError(f"{variable!r} holds bool; a {kind} value would be cut off: compare it first, value != 0")
    if not is_number:
        return jnp.asarray(source, dtype)
    try:
        return np.asarray(source, dtype)
    except OverflowError:
        raise InvalidValueError(f"{source} does not fit {variable!r}, which holds {dtype}") from None


def check_shapes(variable: Any, operand: Any, what: str) -> None:
    """InvalidValueError unless ``operand``, or each of its components, has the variable's shape."""
    for shape in _shapes(operand):
        if shape != variable.shape:
            raise InvalidValueError(
                f"{what} of a value of shape {list(shape)} to {variable!r}: the shapes must be equal; use "
                "jnp.broadcast_to(value, v.shape) to give every element the same"
            )


def _shapes(operand: Any) -> list[tuple[int, ...]]:
    operand = getattr(operand, "local", operand)  # of a step: this replica's
    if isinstance(operand, (IndexedSlices, PerReplicaSlices)):
        return []  # checked where they are made dense
    if isinstance(operand, PerReplica):
        stacked = operand.stacked
        return [stacked.shape[1:]] if stacked is not None else [np.shape(value) for value in operand.values]
    operand = operand.value if isinstance(operand, Mirrored) else operand
    try:
        return [] if is_slices(operand) else [tuple(np.shape(operand))]
    except ValueError:
        return []  # rows of different lengths: refused by the cast


def refuse_in_traced_function(variable: object, what: str, *operands: Any) -> None:
    """VariableScopeError in a traced function that is no step: the value would be baked in and go stale.

    Under grad or vmap alone, which run at once, only ``operands`` that are placeholders are refused.
    """
    if not is_tracing():
        return
    stages = isinstance(lax.add(np.float32(0), np.float32(0)), jax.core.Tracer)
    if stages or any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(operands)):
        raise VariableScopeError(
            f"{variable!r} was {what} in a traced function outside strategy.run, where its value would be frozen; "
            "pass v.value as an argument or call through strategy.run"
        )


def initial_value_of(value: Any) -> Any:
    """The array that an initial value, or a function making one, stands for."""
    value = value() if callable(value) else value
    value = own_copy(value.value if isinstance(value, ArrayOperators) else value)
    return value if isinstance(value, jax.Array) else copy_if_host(check_host_array(value))


def copy_on(array: jax.Array, home: jax.Device) -> jax.Array:
    """The part of a replicated array that lies on ``home``, or a copy there."""
    first: jax.Array = array.addressable_data(0)
    if home in first.devices():  # the usual home, found without making an object per shard
        return first
    for shard in array.addressable_shards:
        if shard.device == home:
            local: jax.Array = shard.data
            return local
    return put(first, home)


def replace_value(_: Any, operand: Any) -> Any:
    """The update that ``assign`` makes."""
    return operand


def copy_array(array: jax.Array) -> jax.Array:
    """A copy on the same devices."""
    if array.is_fully_addressable:
        copied: jax.Array = _copy(array)
        return copied
    # Each process by itself: whether someone holds the value, so that it is copied, can differ between them.
    own = [_copy(shard.data) for shard in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, own)


@jax.jit
def _copy(array: jax.Array) -> jax.Array:
    return jnp.copy(array)


def apply_update(update: Update, current: jax.Array, operand: Any) -> jax.Array:
    """A copy of the variable after ``update``, in its shape and dtype."""
    return jnp.broadcast_to(jnp.asarray(update(current, operand), current.dtype), current.shape)
