"""Primitives of our own: an exact division, one value from all replicas', and every replica's array on each of them.

``replica_quotient`` divides by a count, correctly rounded. XLA turns a division by one number into a multiplication by
its reciprocal, whose last bit is wrong for a third of all values when the count is no power of two. A mean over
replicas must not depend on how it was compiled.

``replica_aggregate`` brings one value per replica together when a mirrored variable is written. It is a primitive so
that the uniformity pass can find it in a traced step and turn it into nothing where the replicas provably hold the same
value (an all-reduced gradient, say). Otherwise it lowers to an all-reduce.

``replica_gather_components`` gives one array per replica where their shapes differ, each in its own shape (lock-step
executor only). It is linear; its transpose adds up, over the replicas, the gradients that belong to this one's array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from drumline.distribute.base.enums import VariableAggregation
from drumline.distribute.values.per_replica import REPLICA_AXIS

quotient_p = Primitive("replica_quotient")
#: Up to here the reciprocals of powers of two are normal numbers even of float16, so that no bit is lost.
_EXACT_RECIPROCALS = 2**13


def exact_quotient(total: Any, count: int) -> Any:
    """``total / count`` of a floating ``total``, inside traced functions too; linear in ``total``."""
    return quotient_p.bind(total, count=count)


def divide_exactly(total: Any, count: Any) -> Any:
    """What the primitive means. ``count`` may be traced: a scalar of any dtype."""
    if isinstance(count, int) and count <= _EXACT_RECIPROCALS and count & (count - 1) == 0:
        return lax.mul(total, np.asarray(1 / count, total.dtype))  # the same value, for less than a division costs
    counts = lax.broadcast(lax.convert_element_type(count, total.dtype), total.shape)
    return lax.div(total, lax.select(lax.ne(total, total), total, counts))  # NaN stays NaN; XLA sees no one divisor


def _transpose_quotient(cotangent: Any, total: Any, *, count: int) -> list[Any]:
    return [exact_quotient(ad.instantiate_zeros(cotangent), count)]


def _batch_quotient(values: tuple[Any], dims: tuple[Any], *, count: int) -> tuple[Any, Any]:
    return exact_quotient(values[0], count), dims[0]


quotient_p.def_impl(divide_exactly)
quotient_p.def_abstract_eval(lambda total, *, count: ShapedArray(total.shape, total.dtype))
ad.deflinear2(quotient_p, _transpose_quotient)
batching.primitive_batchers[quotient_p] = _batch_quotient
mlir.register_lowering(quotient_p, mlir.lower_fun(divide_exactly, multiple_results=False))


aggregate_p = Primitive("replica_aggregate")


def aggregate(value: Any, aggregation: VariableAggregation, num_replicas: int) -> Any:
    """One value from all replicas': their sum, their mean, or replica 0's; the same on every replica."""
    return aggregate_p.bind(value, op=aggregation.name, num_replicas=num_replicas, uniform=False, refusal=None)


def require_agreement(value: Any, num_replicas: int, refusal: str) -> Any:
    """``value``, which all replicas must hold; InvalidValueError with the text ``refusal`` once the step is traced,
    unless they provably do (an all-reduced value and what is computed from it, say).
    """
    first = VariableAggregation.ONLY_FIRST_REPLICA.name
    return aggregate_p.bind(value, op=first, num_replicas=num_replicas, uniform=False, refusal=refusal)


def combine(value: Any, *, op: str, num_replicas: int, uniform: bool, refusal: str | None) -> Any:
    """What the primitive means, with the axis bound. ``uniform``: every replica holds the same value already."""
    if uniform:
        return value * jnp.asarray(num_replicas, value.dtype) if op == "SUM" else value
    if op == "ONLY_FIRST_REPLICA":
        first = lax.axis_index(REPLICA_AXIS) == 0
        kept = jnp.where(first, value, jnp.zeros_like(value))
        if value.dtype == jnp.bool_:
            return lax.psum(kept.astype(jnp.int32), REPLICA_AXIS).astype(jnp.bool_)
        return lax.psum(kept, REPLICA_AXIS)
    total = lax.psum(value, REPLICA_AXIS)
    return exact_quotient(total, num_replicas) if op == "MEAN" else total


def _abstract_aggregate(value: ShapedArray, **_: Any) -> ShapedArray:
    return ShapedArray(value.shape, value.dtype)


def _batch_aggregate(values: tuple[Any], dims: tuple[Any], **params: Any) -> tuple[Any, Any]:
    return aggregate_p.bind(values[0], **params), dims[0]


aggregate_p.def_abstract_eval(_abstract_aggregate)
batching.primitive_batchers[aggregate_p] = _batch_aggregate
mlir.register_lowering(aggregate_p, mlir.lower_fun(combine, multiple_results=False))


gather_components_p = Primitive("replica_gather_components")
gather_components_p.multiple_results = True
return_gradients_p = Primitive("replica_return_gradients")
return_gradients_p.multiple_results = True

Shapes = tuple[tuple[int, ...], ...]


def gather_components(value: Any, shapes: Sequence[tuple[int, ...]], replica: int) -> list[Any]:
    """Every replica's array; ``shapes`` are all replicas' shapes, ``replica`` is whose program this is."""
    return list(gather_components_p.bind(value, shapes=tuple(shapes), replica=replica))


def _gather_abstract(value: ShapedArray, *, shapes: Shapes, replica: int) -> list[ShapedArray]:
    return [ShapedArray(shape, value.dtype) for shape in shapes]


def _return_abstract(*gradients: ShapedArray, shapes: Shapes, replica: int) -> list[ShapedArray]:
    return [ShapedArray(shapes[replica], gradients[0].dtype)]


def _gather_transpose(cotangents: Sequence[Any], value: Any, *, shapes: Shapes, replica: int) -> list[Any]:
    gradients = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    return list(return_gradients_p.bind(*gradients, shapes=shapes, replica=replica))


def _return_transpose(cotangents: Sequence[Any], *gradients: Any, shapes: Shapes, replica: int) -> list[Any]:
    (cotangent,) = cotangents
    return gather_components(ad.instantiate_zeros(cotangent), shapes, replica)


gather_components_p.def_abstract_eval(_gather_abstract)
return_gradients_p.def_abstract_eval(_return_abstract)
ad.deflinear2(gather_components_p, _gather_transpose)
ad.deflinear2(return_gradients_p, _return_transpose)


def exchange_components(operands: list[list[Any]], devices: Sequence[jax.Device]) -> list[list[Any]]:
    """Every array on every device."""
    arrays = [row[0] for row in operands]
    return [list(jax.device_put(arrays, device)) for device in devices]


def sum_gradients(operands: list[list[Any]], devices: Sequence[jax.Device]) -> list[list[Any]]:
    """For each replica the sum of what all replicas have for it."""
    results = []
    for replica, device in enumerate(devices):
        parts = jax.device_put([row[replica] for row in operands], device)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        results.append([total])
    return results
