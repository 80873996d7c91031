"""What a step may say of the several devices of its replica: how a value is split, where something is computed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from drumline.distribute.contexts import context
from drumline.distribute.errors import ContextError, InvalidValueError
from drumline.distribute.values.device_group import prime_factors


class Replicas(Protocol):
    """What these functions need of a strategy."""

    logical_axes: dict[str, int]


def check_logical_device(axes: Mapping[str, int], logical_device_id: Any) -> int:
    """The number of one of a replica's devices; InvalidValueError for another."""
    count = math.prod(axes.values())
    try:
        number = operator.index(logical_device_id)
    except TypeError:
        number = -1
    if not 0 <= number < count:
        raise InvalidValueError(
            f"there is no logical device {logical_device_id!r:.40}: each replica has {count}, counted from 0; build "
            "the device assignment with a larger computation_shape"
        )
    return number


def check_split(axes: Mapping[str, int], shape: Sequence[int], partition_dimensions: Sequence[int]) -> list[int]:
    """The numbers of pieces per dimension; InvalidValueError where they do not fit the value or the devices."""
    pieces = [int(each) for each in np.asarray(partition_dimensions).reshape(-1)]
    if len(pieces) != len(shape):
        raise InvalidValueError(
            f"partition_dimensions {pieces} has {len(pieces)} numbers, and the value {list(shape)} {len(shape)} "
            "dimensions; give one for each, 1 where it is not split"
        )
    for dimension, (size, count) in enumerate(zip(shape, pieces, strict=True)):
        if count < 1 or size % count:
            raise InvalidValueError(
                f"dimension {dimension} of a value {list(shape)} does not divide into {count} pieces"
            )
    devices = math.prod(axes.values())
    if math.prod(pieces) != devices:
        raise InvalidValueError(
            f"partition_dimensions {pieces} makes {math.prod(pieces)} pieces; each replica has {devices} logical "
            "devices"
        )
    return pieces


def split(group: Replicas, tensor: Any, partition_dimensions: Sequence[int]) -> Any:
    """``tensor`` in equal pieces, one on each of the replica's devices, the last dimension's first."""
    pieces = check_split(group.logical_axes, jnp.shape(tensor), partition_dimensions)
    return _constrained(group, tensor, _partition(group.logical_axes, pieces))


def replicate(group: Replicas, tensor: Any) -> Any:
    """``tensor`` whole on each of the replica's devices."""
    return _constrained(group, tensor, P())


def placed(group: Replicas, function: Callable[..., Any], logical_device_id: int) -> Callable[..., Any]:
    """``function`` computed on one of the replica's devices only; the others wait for what it returns."""
    number = check_logical_device(group.logical_axes, logical_device_id)
    axes = group.logical_axes

    def on_one(*args: Any) -> Any:
        results = jax.eval_shape(function, *args)

        def compute(*args: Any) -> Any:
            return jax.tree.map(lambda result: jnp.asarray(result).astype(_summable(result)), function(*args))

        def wait(*args: Any) -> Any:
            return jax.tree.map(lambda result: jnp.zeros(result.shape, _summable(result)), results)

        computed = lax.cond(_own_number(axes) == number, compute, wait, *args)
        return jax.tree.map(lambda part, result: lax.psum(part, tuple(axes)).astype(result.dtype), computed, results)

    def call(*args: Any) -> Any:
        _require_step(group)
        if not axes:
            return function(*args)
        return jax.shard_map(on_one, in_specs=P(), out_specs=P(), axis_names=set(axes), check_vma=False)(*args)

    return call


def _constrained(group: Replicas, tensor: Any, spec: P) -> Any:
    _require_step(group)
    return lax.with_sharding_constraint(tensor, spec) if group.logical_axes else tensor


def _require_step(group: Replicas) -> None:
    trace = context.current_trace()
    if trace is None or trace.strategy is not group:
        raise ContextError("logical devices are those of a replica: call this inside a step that the strategy runs")


def _partition(axes: Mapping[str, int], pieces: Sequence[int]) -> P:
    """The axes whose sizes multiply to each dimension's pieces, in order."""
    free = list(axes.items())
    spec = []
    for count in pieces:
        names = []
        for factor in prime_factors(count):
            index = next(i for i, (_, size) in enumerate(free) if size == factor)
            names.append(free.pop(index)[0])
        spec.append(tuple(names) or None)
    return P(*spec)


def _own_number(axes: Mapping[str, int]) -> Any:
    """Which of its replica's devices this one is: the last axis is the fastest."""
    number: Any = 0
    for name, size in axes.items():
        number = number * size + lax.axis_index(name)
    return number


def _summable(value: Any) -> Any:
    """The type in which a value is added up: booleans have no sum."""
    dtype = jnp.result_type(value)
    return jnp.int8 if dtype == jnp.bool_ else dtype
