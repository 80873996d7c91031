"""The mean over the global batch, which training loops get wrong by hand."""

from __future__ import annotations

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.base.call_site import caller_stacklevel
from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.combine import reduction
from drumline.distribute.contexts import context
from drumline.distribute.errors import InvalidValueError, MeanOfMeansWarning
from drumline.distribute.tracing.accumulation import current_part
from drumline.distribute.tracing.collectives import all_reduce
from drumline.distribute.tracing.row_weights import weights_of
from drumline.distribute.values.per_replica import PerReplica


def global_mean(per_example: Any, *, global_batch_size: float | None = None) -> Any:
    """Gives this replica's share of the mean over the whole batch: its sum divided by the elements of ALL replicas.

    Inside a step, take it as the loss and all_reduce gradients and loss with "sum": each example then weighs the same
    however the batch was split, an empty replica adds nothing, and no global batch size need be known.
    ``per_example``: [rows, ...], or a nest of such. ``global_batch_size`` divides the sum in place of the elements, as
    TensorFlow's ``compute_average_loss`` does: a last batch of fewer rows then weighs less.
    Raises InvalidValueError for a batch size that is no positive number.
    """
    if global_batch_size is not None and not global_batch_size > 0:
        raise InvalidValueError(f"global_batch_size={global_batch_size!r} is no positive number of examples")
    context.require_replica_context("global_mean")

    def share(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        reduction.check_reducible(ReduceOp.MEAN, leaf.dtype)
        dtype = reduction.mean_dtype(leaf.dtype)
        weights = weights_of(leaf) if current_part() is None else None
        if weights is not None:
            return _weighted_share(leaf, weights, dtype, global_batch_size)
        own, scale = _elements_of_batch(leaf)
        count = _count(own, global_batch_size)
        return jnp.sum(leaf, dtype=dtype) * scale / count.astype(dtype)

    return jax.tree.map(share, per_example)


def _count(own: Any, told: float | None) -> jax.Array:
    """By what a sum is divided: what was ``told``, or the replicas' ``own`` numbers of elements together."""
    if told is not None:
        return jnp.asarray(told, jnp.float32)
    count: jax.Array = all_reduce(ReduceOp.SUM, jnp.asarray(own, jnp.float32))
    return count


def _weighted_share(leaf: jax.Array, weights: jax.Array, dtype: Any, told: float | None) -> jax.Array:
    """Of a batch that may be padded: rows that only fill up add nothing, whatever they hold."""
    counts = weights.reshape(-1, *(1,) * (leaf.ndim - 1)) > 0
    own = jnp.sum(weights) * math.prod(leaf.shape[1:])
    total = jnp.sum(jnp.where(counts, leaf, jnp.zeros_like(leaf)), dtype=dtype)
    share: jax.Array = total / _count(own, told).astype(dtype)
    return share


def _elements_of_batch(leaf: Any) -> tuple[int, Any]:
    """How many elements the replica's batch has, and what a mean over parts of it divides the part's share by.

    In ``accumulate_gradients`` ``leaf`` is of one part, and replicas' parts may differ in rows.
    """
    part, trace = current_part(), context.current_trace()
    if part is not None and trace is not None and trace.row_weights is not None:
        raise InvalidValueError(
            "global_mean inside accumulate_gradients of batches that may be padded: the parts' weights are not known; "
            "use InputOptions(last_batch='exact') or 'drop'"
        )
    if part is None or not leaf.ndim or leaf.shape[0] != part.rows or part.rows == part.batch_rows:
        return leaf.size, 1
    scale = part.batch_rows / part.rows if part.rows else 1
    return math.prod(leaf.shape[1:]) * part.batch_rows, np.asarray(scale, reduction.mean_dtype(leaf.dtype))


def warn_of_mean_of_means(value: PerReplica) -> None:
    """Warns when per-replica results over different numbers of rows are about to be averaged without weights."""
    rows = value.batch_rows
    if rows is not None and len(set(rows)) > 1:
        without = ", and a mean of no rows is NaN" if 0 in rows else ""
        warnings.warn(
            f"the mean of one value per replica, made from {', '.join(map(str, rows))} rows: each replica weighs the "
            f"same, so rows do not{without}. Return values per row and reduce them with axis=0, or use "
            "dist.global_mean in the step and reduce with 'sum'",
            MeanOfMeansWarning,
            stacklevel=caller_stacklevel(),
        )
