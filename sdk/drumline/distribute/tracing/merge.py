"""merge_call: all replicas of a step meet, and one function sees the values of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from drumline.distribute.base.enums import ReduceOp
from drumline.distribute.combine import reduction
from drumline.distribute.combine.combiners import InStepCombiner
from drumline.distribute.combine.primitives import gather_components, require_agreement
from drumline.distribute.contexts import context
from drumline.distribute.contexts.step_trace import ReplicaNumberNeeded
from drumline.distribute.errors import ContextError, InvalidValueError
from drumline.distribute.tracing.arguments import is_array_or_number, static_key
from drumline.distribute.values.indexed_slices import IndexedSlices, is_slices
from drumline.distribute.values.per_replica import REPLICA_AXIS, PerReplica, PerReplicaSlices

if TYPE_CHECKING:
    from drumline.distribute.contexts.step_trace import StepTrace


class MergedValue(PerReplica):
    """A per-replica value of the step being traced. The other replicas' components are gathered when looked at."""

    __slots__ = ("is_known_to_differ", "local", "shapes", "trace")

    def __init__(self, local: Any, trace: StepTrace, *, is_known_to_differ: bool = False) -> None:
        super().__init__(None, None, None)
        self.local = jnp.asarray(local)
        self.is_known_to_differ = is_known_to_differ
        self.trace = trace
        shapes = trace.exchange("merge_call", self.local.shape) if trace.exchange is not None else None
        self.shapes: list[tuple[int, ...]] = shapes or [self.local.shape] * trace.num_replicas

    @property
    def num_replicas(self) -> int:
        return self.trace.num_replicas

    @property
    def values(self) -> tuple[Any, ...]:
        if self._components is None:
            if self.trace.replica is not None:
                gathered = gather_components(self.local, self.shapes, self.trace.replica)
            else:
                gathered = list(lax.all_gather(self.local, REPLICA_AXIS))
            self._components = tuple(gathered)
        return self._components

    def __repr__(self) -> str:
        return f"PerReplica({', '.join(f'{self.local.dtype}{list(shape)}' for shape in self.shapes)}, traced)"


class MergedSlices(PerReplicaSlices):
    """IndexedSlices of the step being traced."""

    __slots__ = ()

    rows_values: MergedValue
    indices: MergedValue

    @property
    def trace(self) -> StepTrace:
        """The trace it belongs to."""
        return self.indices.trace

    @property
    def local(self) -> IndexedSlices:
        """The rows of this replica."""
        return IndexedSlices(self.rows_values.local, self.indices.local, self.dense_shape)

    def known_components(self) -> Sequence[IndexedSlices]:
        return [self.local]

    def to_dense(self) -> PerReplica:
        return MergedValue(self.local.to_dense(), self.rows_values.trace)

    def __repr__(self) -> str:
        return f"PerReplica({self.local!r}, traced)"


@dataclass(frozen=True, slots=True)
class MergeCombiner:
    """Combines values of the step in a merge function."""

    trace: StepTrace

    @property
    def num_replicas(self) -> int:
        """The strategy's."""
        return self.trace.num_replicas

    def add(self, op: ReduceOp, value: MergedValue, axis: Any) -> Any:
        """Sum or mean over all replicas, and over ``axis``."""
        axes = reduction.normalize_axis(axis, value.local.ndim)
        rest = {tuple(n for i, n in enumerate(shape) if i not in (axes or ())) for shape in value.shapes}
        if len(rest) > 1:
            shown = ", ".join(str(list(shape)) for shape in value.shapes)
            raise InvalidValueError(
                f"components of different shapes can't be added: {shown}; pass the axis they differ in"
            )
        return self._same_everywhere(InStepCombiner(self.trace).add(op, value.local, axis, value.shapes))

    def concatenate(self, value: MergedValue, axis: int) -> Any:
        """All components in replica order."""
        return self._same_everywhere(InStepCombiner(self.trace).concatenate(value.local, axis, value.shapes))

    def _same_everywhere(self, result: Any) -> Any:
        self.trace.note_broadcast(result)
        return result


def is_merged(value: Any) -> bool:
    """Tells whether it is a per-replica value of a step being traced."""
    return isinstance(value, (MergedValue, MergedSlices))


def local_component(value: Any) -> Any:
    """The component that this replica has of a value of the step; any other value as it is."""
    return value.local if is_merged(value) else value


def agreed_component(value: Any, refusal: str) -> Any:
    """The component that every replica has of a value of the step, any other value as it is. InvalidValueError with the
    text ``refusal`` once the step is traced, unless replicas provably have the same.
    """
    if not is_merged(value):
        return value
    if isinstance(value, MergedValue) and value.is_known_to_differ:
        raise InvalidValueError(refusal)
    return jax.tree.map(lambda part: require_agreement(part, value.num_replicas, refusal), value.local)


def merge(
    replica: context.ReplicaProtocol, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Runs ``fn`` in cross-replica context and gives this replica its part of the result."""
    trace = context.current_trace()
    assert trace is not None
    if not trace.is_at_top_level:
        raise ContextError(
            "merge_call was called inside a nested jit, cond, loop, grad or vmap; all replicas can meet at the top "
            "level of the step only. Return the value and merge it there, or use dist.all_reduce"
        )
    if trace.exchange is not None:
        trace.exchange("merge_call", None)  # replicas that never come are found here, whatever the arguments are
    merged_args, merged_kwargs = jax.tree.map(lambda leaf: _enter(leaf, trace), (args, kwargs), is_leaf=is_slices)
    strategy = replica.strategy
    with context.enter(context.ContextEntry(strategy, trace=trace)):
        result = fn(strategy, *merged_args, **merged_kwargs)
    return jax.tree.map(lambda leaf: _leave(leaf, trace), result)


def _enter(leaf: Any, trace: StepTrace) -> Any:
    if is_slices(leaf):
        return _enter_slices(leaf, trace)
    if not isinstance(leaf, jax.core.Tracer):
        return _enter_constant(leaf, trace)
    return leaf if trace.is_same_object(leaf) else MergedValue(leaf, trace)


def _enter_constant(leaf: Any, trace: StepTrace) -> Any:
    """Where each replica has its own program, a constant of one (its rows, its number) can be another's other value."""
    if trace.exchange is None:
        return leaf
    values = trace.exchange("merge_call", leaf)
    if all(_is_same_constant(value, leaf) for value in values):
        return leaf
    if all(map(is_array_or_number, values)):
        return MergedValue(leaf, trace, is_known_to_differ=True)
    return PerReplica.from_components(values)


def _is_same_constant(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if not (is_array_or_number(one) and is_array_or_number(other)):
        return static_key(one) == static_key(other)
    arrays = np.asarray(one), np.asarray(other)
    return arrays[0].dtype == arrays[1].dtype and np.array_equal(*arrays)


def _enter_slices(slices: IndexedSlices, trace: StepTrace) -> Any:
    if all(trace.is_same_object(part) for part in slices.parts()):
        return slices
    values, indices = (MergedValue(part, trace) for part in slices.parts())
    return MergedSlices(values, indices, (slices.dense_shape,))


def _leave(leaf: Any, trace: StepTrace) -> Any:
    """Takes this replica's component of a merge function's result."""
    if is_merged(leaf):
        return leaf.local
    if isinstance(leaf, PerReplicaSlices):
        return IndexedSlices(_leave(leaf.rows_values, trace), _leave(leaf.indices, trace), leaf.dense_shape)
    if not isinstance(leaf, PerReplica):
        if isinstance(leaf, jax.core.Tracer):
            trace.note_broadcast(leaf)
        return leaf
    if trace.replica is not None and not trace.is_shared:
        return leaf.values[trace.replica]
    if not all(map(is_array_or_number, leaf.values)) or len({jnp.shape(value) for value in leaf.values}) > 1:
        raise ReplicaNumberNeeded
    return lax.dynamic_index_in_dim(jnp.stack(leaf.values), lax.axis_index(REPLICA_AXIS), keepdims=False)
