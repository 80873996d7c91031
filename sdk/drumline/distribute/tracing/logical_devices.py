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
from drumline.distribute.contexts.step_trace import StepTrace
from drumline.distribute.errors import CollectiveError, ContextError, InvalidTypeError, InvalidValueError
from drumline.distribute.tracing import jaxprs
from drumline.distribute.tracing.uniformity import COLLECTIVES, only_over_replicas
from drumline.distribute.values.device_group import prime_factors
from drumline.distribute.values.operators import ArrayOperators


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
    try:
        pieces = [operator.index(each) for each in partition_dimensions]
    except TypeError:
        raise InvalidValueError(
            f"partition_dimensions must be a list of whole numbers, one for each dimension; got "
            f"{partition_dimensions!r:.60}"
        ) from None
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
    _refuse_inside_placed(_require_step(group))
    tensor = _array_of(tensor)
    pieces = check_split(group.logical_axes, jnp.shape(tensor), partition_dimensions)
    return _constrain(group, tensor, _partition(group.logical_axes, pieces))


def replicate(group: Replicas, tensor: Any) -> Any:
    """``tensor`` whole on each of the replica's devices."""
    _require_step(group)
    return _constrain(group, _array_of(tensor), P())


def place_on(group: Replicas, function: Callable[..., Any], logical_device_id: int) -> Callable[..., Any]:
    """``function`` computed on one of the replica's devices only; the others wait for what it returns."""
    number = check_logical_device(group.logical_axes, logical_device_id)
    axes = group.logical_axes

    def call(*args: Any, **kwargs: Any) -> Any:
        trace = _require_step(group)
        _refuse_inside_placed(trace)
        if not axes:
            return function(*args, **kwargs)
        for leaf in jax.tree.leaves((args, kwargs)):
            _array_of(leaf)
        return _Placed(function, number, axes, trace)(args, kwargs)

    return call


class _Placed:
    """One call of a function on one device. Variables are read before it and brought as values: a ref can't be."""

    def __init__(self, function: Callable[..., Any], number: int, axes: Mapping[str, int], trace: StepTrace) -> None:
        self._function = function
        self._number = number
        self._axes = axes
        self._trace = trace

    def __call__(self, args: Any, kwargs: Any) -> Any:
        variables: dict[int, Any] = {}

        def note(variable: Any) -> Any:
            variables[id(variable)] = variable
            return jnp.zeros(variable.shape, variable.dtype)

        with self._trace.lending(note):
            closed, results = jax.make_jaxpr(self._function, axis_env=[*self._axes.items()], return_shape=True)(
                *args, **kwargs
            )
        _check_placed(closed, results)

        def on_one(values: list[Any], args: Any, kwargs: Any) -> Any:
            return self._on_one(dict(zip(variables, values, strict=True)), results, args, kwargs)

        mapped = jax.shard_map(on_one, in_specs=P(), out_specs=P(), axis_names=set(self._axes), check_vma=False)
        return mapped([self._trace.load(variable) for variable in variables.values()], args, kwargs)

    def _on_one(self, values: dict[int, Any], results: Any, args: Any, kwargs: Any) -> Any:
        def compute(args: Any, kwargs: Any) -> Any:
            found = self._function(*args, **kwargs)
            return jax.tree.map(lambda result: jnp.asarray(result).astype(_summable(result)), found)

        def wait(*_: Any) -> Any:
            return jax.tree.map(lambda result: jnp.zeros(result.shape, _summable(result)), results)

        with self._trace.lending(lambda variable: values[id(variable)]):
            computed = lax.cond(_own_number(self._axes) == self._number, compute, wait, args, kwargs)
        names = tuple(self._axes)
        return jax.tree.map(lambda part, result: lax.psum(part, names).astype(result.dtype), computed, results)


def _check_placed(closed: Any, results: Any) -> None:
    """Refuses what one logical device can't compute without the others."""
    if _waits_for_others(closed.jaxpr):
        raise CollectiveError(
            "ppermute, all_to_all or a collective over logical devices inside a function that one logical device "
            "computes would wait for the devices that skip it: return the value from the function and exchange it in "
            "the step"
        )
    if any(jnp.issubdtype(result.dtype, jax.dtypes.extended) for result in jax.tree.leaves(results)):
        raise InvalidTypeError(
            "a function that one logical device computes returned a random key, which has no sum: return "
            "jax.random.key_data(key), and wrap it in the step by jax.random.wrap_key_data"
        )


def _waits_for_others(jaxpr: Any) -> bool:
    """Tells whether it holds a collective of more devices than those of the same number in each replica."""
    return any(
        eqn.primitive.name in ("ppermute", "all_to_all")
        or (eqn.primitive.name in COLLECTIVES and not only_over_replicas(eqn))
        or any(map(_waits_for_others, jaxprs.subjaxprs(eqn)))
        for eqn in jaxpr.eqns
    )


def _constrain(group: Replicas, tensor: Any, spec: P) -> Any:
    _refuse_inside_placed(_require_step(group))
    return lax.with_sharding_constraint(tensor, spec) if group.logical_axes else tensor


def _array_of(value: Any) -> Any:
    """An array, or a number; a variable's value. InvalidTypeError for others."""
    value = value.value if isinstance(value, ArrayOperators) else value
    if not isinstance(value, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
        raise InvalidTypeError(
            f"logical devices hold arrays; got {value!r:.60}: give each array of a nest on its own, by jax.tree.map"
        )
    return value


def _require_step(group: Replicas) -> StepTrace:
    trace = context.current_trace()
    if trace is None or trace.strategy is not group:
        raise ContextError("logical devices are those of a replica: call this inside a step that the strategy runs")
    return trace


def _refuse_inside_placed(trace: StepTrace) -> None:
    """Inside a function that one device computes the others do something else."""
    if trace.is_lending:
        raise ContextError(
            "logical devices are named inside a function that one of them computes, and the others take no part in it: "
            "call this in the step, before or after assign_to_logical_device(function, id)"
        )


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
