"""The step functions that cases name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import drumline.distribute as dist


def replica_id() -> Any:
    """This replica's id, as the engine gives it."""
    context = dist.get_replica_context()
    assert context is not None
    return context.replica_id_in_sync_group


def _num_replicas() -> int:
    context = dist.get_replica_context()
    assert context is not None
    return context.num_replicas_in_sync


def _raise(*_: Any) -> Any:
    raise ValueError("raised by the step")


def divided(total: Any, count: int) -> Any:
    """The quotient rounded as TensorFlow's is: XLA multiplies by the reciprocal where it sees one divisor for all."""
    return total / jnp.where(total == total, jnp.asarray(count, total.dtype), total)


def mean(x: Any) -> Any:
    """The mean of all elements; NaN without any."""
    return divided(jnp.sum(x, dtype=x.dtype), x.size)


def _a_plus_b(a: Any, b: Any) -> Any:
    return a + b


_STEPS: dict[str, Callable[..., Any]] = {
    "identity": lambda x: x,
    "add_one": lambda x: x + jnp.asarray(1, x.dtype),
    "sum": lambda x: jnp.sum(x, dtype=x.dtype),
    "sum_of_squares": lambda x: jnp.sum(x * x, dtype=x.dtype),
    "mean_loss": lambda x: mean(x.astype(jnp.float32)),
    "batch_len": lambda x: jnp.asarray(x.shape[0], jnp.int32),
    "matmul": lambda x: x @ x.T,
    "replica_id": lambda *_: jnp.asarray(replica_id(), jnp.int32),
    "num_replicas": lambda *_: _num_replicas(),
    "scale_by_replica_id": lambda x: x * jnp.asarray(replica_id(), x.dtype),
    "two_outputs": lambda x: (x, x * jnp.asarray(2, x.dtype)),
    "dict_output": lambda x: {"double": x * jnp.asarray(2, x.dtype), "first": x[0]},
    "python_constant": lambda *_: 7,
    "returns_none": lambda *_: None,
    "all_reduce_sum": lambda x: dist.all_reduce("SUM", x),
    "all_reduce_mean": lambda x: dist.all_reduce("MEAN", x),
    "all_reduce_sum_then_divide": lambda x: jax.tree.map(
        lambda leaf: divided(leaf, _num_replicas()), dist.all_reduce("SUM", x)
    ),
    "all_gather_axis0": lambda x: dist.all_gather(x, axis=0),
    "all_gather_axis1": lambda x: dist.all_gather(x, axis=1),
    "raise_value_error": _raise,
    "a_plus_b": _a_plus_b,
    "sum_plus_100": lambda x: jnp.sum(x, dtype=x.dtype) + jnp.asarray(100, x.dtype),
}


def step_function(name: str) -> Callable[..., Any]:
    """The step by its golden name."""
    return _STEPS[name]
