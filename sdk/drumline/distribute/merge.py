"""merge_call: all replicas of a step meet, and one function sees the values of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from drumline.distribute import context, reduction
from drumline.distribute.component_gather import gather_components
from drumline.distribute.enums import ReduceOp
from drumline.distribute.errors import ContextError, InvalidValueError
from drumline.distribute.lifting import ReplicaNumberNeeded
from drumline.distribute.values import REPLICA_AXIS, PerReplica

if TYPE_CHECKING:
    from drumline.distribute.lifting import Frame


class MergedValue(PerReplica):
    """A per-replica value of the step being traced. The other replicas' components are gathered when looked at."""

    __slots__ = ("frame", "local", "shapes")

    def __init__(self, local: Any, frame: Frame) -> None:
        super().__init__(None, None, None)
        self.local = jnp.asarray(local)
        self.frame = frame
        shapes = frame.exchange("merge_call", self.local.shape) if frame.exchange is not None else None
        self.shapes: list[tuple[int, ...]] = shapes or [self.local.shape] * frame.num_replicas

    @property
    def num_replicas(self) -> int:
        return self.frame.num_replicas

    @property
    def values(self) -> tuple[Any, ...]:
        if self._components is None:
            if self.frame.replica is not None:
                gathered = gather_components(self.local, self.shapes, self.frame.replica)
            else:
                gathered = list(lax.all_gather(self.local, REPLICA_AXIS))
            self._components = tuple(gathered)
        return self._components

    def reduce(self, op: ReduceOp, axis: Any) -> jax.Array:
        """Sum or mean over all replicas, and over ``axis``."""
        reduction.check_reducible(op, self.local.dtype)
        axes = reduction.normalize_axis(axis, self.local.ndim)
        rest = {tuple(n for i, n in enumerate(shape) if i not in (axes or ())) for shape in self.shapes}
        if len(rest) > 1:
            shown = ", ".join(str(list(shape)) for shape in self.shapes)
            raise InvalidValueError(
                f"components of different shapes can't be added: {shown}; pass the axis they differ in"
            )
        total: jax.Array = lax.psum(reduction.sum_over(self.local, axes), REPLICA_AXIS)
        if op is ReduceOp.MEAN:
            total = reduction.divide(total, sum(reduction.counts_of_shapes(self.shapes, axes)))
        self.frame.note_broadcast(total)
        return total

    def __repr__(self) -> str:
        return f"PerReplica({', '.join(f'{self.local.dtype}{list(shape)}' for shape in self.shapes)}, traced)"


def merge(
    replica: context.ReplicaContext, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Runs ``fn`` in cross-replica context and gives this replica its part of the result."""
    frame = context.current_frame()
    assert frame is not None
    if not frame.is_at_top_level:
        raise ContextError(
            "merge_call was called inside a nested jit, cond, loop, grad or vmap; all replicas can meet at the top "
            "level of the step only. Return the value and merge it there, or use dist.all_reduce"
        )
    leaves, tree = jax.tree.flatten((args, kwargs))
    merged_args, merged_kwargs = jax.tree.unflatten(tree, [_merged(leaf, frame) for leaf in leaves])
    strategy = replica.strategy
    with context.entered(context.ContextEntry(strategy, frame=frame)):
        result = fn(strategy, *merged_args, **merged_kwargs)
    return jax.tree.map(lambda leaf: _part(leaf, frame), result)


def _merged(leaf: Any, frame: Frame) -> Any:
    if frame.is_same_object(leaf) or not isinstance(leaf, jax.core.Tracer):
        return leaf
    return MergedValue(leaf, frame)


def _part(leaf: Any, frame: Frame) -> Any:
    """Takes this replica's component of a merge function's result."""
    if isinstance(leaf, MergedValue):
        return leaf.local
    if not isinstance(leaf, PerReplica):
        if isinstance(leaf, jax.core.Tracer):
            frame.note_broadcast(leaf)
        return leaf
    if frame.replica is not None and not frame.is_shared:
        return leaf.values[frame.replica]
    if len({jnp.shape(value) for value in leaf.values}) > 1:
        raise ReplicaNumberNeeded
    return lax.dynamic_index_in_dim(jnp.stack(leaf.values), lax.axis_index(REPLICA_AXIS), keepdims=False)
