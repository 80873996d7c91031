"""The primitive that brings one value per replica together when a mirrored variable is written.

It is a primitive of our own so that the uniformity pass can find it in a traced step and turn it into nothing where the
replicas provably hold the same value (an all-reduced gradient, say). Otherwise it lowers to an all-reduce.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from drumline.distribute.base.enums import VariableAggregation
from drumline.distribute.combine.quotient import exact_quotient
from drumline.distribute.values.per_replica import REPLICA_AXIS

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


def _abstract(value: ShapedArray, **_: Any) -> ShapedArray:
    return ShapedArray(value.shape, value.dtype)


def _batch(values: tuple[Any], dims: tuple[Any], **params: Any) -> tuple[Any, Any]:
    return aggregate_p.bind(values[0], **params), dims[0]


aggregate_p.def_abstract_eval(_abstract)
batching.primitive_batchers[aggregate_p] = _batch
mlir.register_lowering(aggregate_p, mlir.lower_fun(combine, multiple_results=False))
