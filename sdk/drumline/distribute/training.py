"""Two things that training loops get wrong by hand: the mean over the global batch, and accumulated gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from drumline.distribute import context
from drumline.distribute.collectives import all_reduce
from drumline.distribute.combine import reduction
from drumline.distribute.enums import ReduceOp
from drumline.distribute.errors import InvalidValueError, MeanOfMeansWarning
from drumline.distribute.values import PerReplica


def global_mean(per_example: Any) -> Any:
    """Gives this replica's share of the mean over the whole batch: its sum divided by the elements of ALL replicas.

    Inside a step, take it as the loss and all_reduce gradients and loss with "sum": each example then weighs the same
    however the batch was split, an empty replica adds nothing, and no global batch size need be known.
    ``per_example``: [rows, ...], or a nest of such.
    """
    context.require_replica_context("global_mean")

    def share(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        reduction.check_reducible(ReduceOp.MEAN, leaf.dtype)
        dtype = reduction.mean_dtype(leaf.dtype)
        count = all_reduce(ReduceOp.SUM, jnp.asarray(leaf.size, jnp.float32))
        return jnp.sum(leaf, dtype=dtype) / count.astype(dtype)

    return jax.tree.map(share, per_example)


def accumulate_gradients(
    fn: Callable[..., Any], num_steps: int, *, argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """``jax.value_and_grad(fn)`` over ``num_steps`` slices of the batch, one after the other, so that it fits memory.

    The function it returns takes what ``fn`` takes; arguments not in ``argnums`` are cut along axis 0 into
    ``num_steps`` equal parts. Loss and gradients are means over the parts (right for a loss that is a mean of rows);
    aux outputs come stacked, [num_steps, ...]. InvalidValueError when rows don't divide.
    """
    if num_steps < 1:
        raise InvalidValueError(f"num_steps={num_steps} must be at least 1")
    differentiated = (argnums,) if isinstance(argnums, int) else argnums
    value_and_grad = jax.value_and_grad(fn, argnums=argnums, has_aux=has_aux)

    def accumulated(*args: Any) -> Any:
        fixed = {i % len(args) for i in differentiated}
        batches = tuple(jax.tree.map(_cut(num_steps), arg) for i, arg in enumerate(args) if i not in fixed)

        def one(batch: Any) -> Any:
            parts = iter(batch)
            value, gradients = value_and_grad(*(arg if i in fixed else next(parts) for i, arg in enumerate(args)))
            loss, aux = value if has_aux else (value, None)
            return (loss, gradients), aux

        def body(total: Any, batch: Any) -> Any:
            part, aux = one(batch)
            return jax.tree.map(jnp.add, total, part), aux

        shapes, _ = jax.eval_shape(one, jax.tree.map(lambda part: part[0], batches))
        zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        totals, aux = lax.scan(body, zeros, batches, length=num_steps)
        loss, gradients = jax.tree.map(lambda total: total / num_steps, totals)
        return ((loss, aux), gradients) if has_aux else (loss, gradients)

    return accumulated


def _cut(num_steps: int) -> Callable[[Any], jax.Array]:
    def cut(leaf: Any) -> jax.Array:
        array = jnp.asarray(leaf)
        if array.ndim == 0 or array.shape[0] % num_steps:
            raise InvalidValueError(
                f"a batch of shape {list(array.shape)} can't be cut into {num_steps} equal parts along axis 0"
            )
        return array.reshape(num_steps, array.shape[0] // num_steps, *array.shape[1:])

    return cut


def warn_of_mean_of_means(value: PerReplica) -> None:
    """Warns when per-replica results over different numbers of rows are about to be averaged without weights."""
    rows = value.batch_rows
    if rows is not None and len(set(rows)) > 1:
        warnings.warn(
            f"the mean of one value per replica, made from {', '.join(map(str, rows))} rows: each replica weighs the "
            "same, so rows do not. Return values per row and reduce them with axis=0, or use dist.global_mean in "
            "the step and reduce with 'sum'",
            MeanOfMeansWarning,
            stacklevel=5,
        )
