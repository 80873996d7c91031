"""What replicas do together inside a step. Legal wherever control flow is the same on every replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.combine import reduction
from drumline.distribute.combine.combiners import InStepCombiner
from drumline.distribute.contexts import context
from drumline.distribute.errors import InvalidTypeError
from drumline.distribute.tracing import merge
from drumline.distribute.tracing.leaf_names import leaf_scope
from drumline.distribute.values.indexed_slices import is_slices


def all_reduce(op: ReduceOp | str, value: Any, options: Any = None) -> Any:
    """Sum or mean over the replicas of every leaf of ``value``; every replica gets the result.

    Integer means are floats; IndexedSlices give all replicas' rows, one after the other. With one replica the value is
    returned as it is. The gradient is the same all-reduce of the incoming gradients.
    Raises ContextError outside a step, InvalidValueError or InvalidTypeError for bools and strings.
    """
    context.require_replica_context("all_reduce")
    op = ReduceOp.parse(op)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _all_reduce_named(op, path, leaf), value, is_leaf=is_slices
    )


def replica_key(key: jax.Array) -> jax.Array:
    """A key of this replica's own, from a key that is the same on all replicas."""
    replica = context.require_replica_context("replica_key")
    return jax.random.fold_in(key, jnp.asarray(replica.replica_id_in_sync_group, jnp.uint32))


def all_gather(value: Any, axis: int = 0, options: Any = None) -> Any:
    """Every leaf's components of all replicas one after the other along ``axis``; every replica gets the result."""
    context.require_replica_context("all_gather")
    return jax.tree.map(lambda leaf: _all_gather_leaf(leaf, axis), value, is_leaf=is_slices)


def merge_call(fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """Calls ``fn(strategy, *args, **kwargs)`` for all replicas together, in cross-replica context.

    Arguments that differ between replicas arrive as PerReplica values; per-replica results go back to their replicas.
    ``fn`` runs once per trace. ContextError inside a nested jit, cond, loop or grad: only at the step's top level do
    all replicas come together.
    """
    replica = context.require_replica_context("merge_call")
    if not isinstance(args, (tuple, list)):
        raise InvalidTypeError(f"merge_call: args must be a tuple or a list, not {args!r:.60}; write args=(value,)")
    if context.current_trace() is None:
        with context.enter(context.ContextEntry(replica.strategy)):
            return fn(replica.strategy, *args, **(kwargs or {}))
    return merge.merge(replica, fn, tuple(args), kwargs or {})


def _all_reduce_named(op: ReduceOp, path: tuple[Any, ...], leaf: Any) -> Any:
    """Leaves of a structure carry their path, for those who look into the program."""
    if not path:
        return _all_reduce_leaf(op, leaf)
    with leaf_scope(path):
        return _all_reduce_leaf(op, leaf)


def _all_reduce_leaf(op: ReduceOp, leaf: Any) -> Any:
    value, trace = getattr(leaf, "value", leaf), context.current_trace()
    if trace is None or trace.num_replicas == 1:
        return value if is_slices(value) or _dtype(value).kind in "OSUT" else jnp.asarray(value)
    if not is_slices(value):
        reduction.check_reducible(op, _dtype(value))
        value = jnp.asarray(value)
    return reduction.reduce(InStepCombiner(trace), op, value)


def _all_gather_leaf(leaf: Any, axis: int) -> Any:
    value = getattr(leaf, "value", leaf)
    return reduction.gather(InStepCombiner(context.current_trace()), value, axis, "all_gather")


def _dtype(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
