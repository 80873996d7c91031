"""Tells the arguments of a step apart: array leaves that are traced, and what is part of the program."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.base.runtime import check_host_array, is_abstract
from drumline.distribute.errors import ContextError
from drumline.distribute.tracing.known_trees import MANY_LEAVES, KnownTree, KnownTrees
from drumline.distribute.values.device_group import DeviceGroup
from drumline.distribute.values.indexed_slices import IndexedSlices, is_slices
from drumline.distribute.values.per_replica import Mirrored, PerReplica, PerReplicaSlices, check_replicas

#: stacked: [replicas, *shape]; ragged: components; plain: the same on all; static: part of the program.
LeafKind = Literal["stacked", "ragged", "plain", "static"]

_PYTHON_NUMBERS = (int, float, complex)
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None))
_MAY_HOLD_SLICES = frozenset({PerReplicaSlices, Mirrored})


@dataclass(frozen=True, slots=True)
class Repeated:
    """A step that is done for each of several batches. ``leaves``: the positions of the batches' leaves, which are
    [replicas, room, *shape]; the steps ``first`` to ``stop`` of them are done.
    """

    leaves: frozenset[int]
    room: int
    first: int
    stop: int


@dataclass(slots=True)  # not frozen: that costs a microsecond a step
class StepArguments:
    """The flattened arguments of one call of ``run``. The signature says when a compiled step can be used again.

    ``objects``: the leaves that are part of the program and can change: callables and objects, also those of one
    replica. ``others``: the leaves to look at before they go into a program, where all not named lie on every device.
    ``row_weights``: of a batch that may be padded; it is the last leaf, and not in the tree.
    """

    tree: Any
    leaves: list[Any]
    kinds: tuple[LeafKind, ...]
    signature: tuple[Hashable, ...]
    rows: tuple[int, ...] | None
    objects: list[Any]
    others: Sequence[int] | None = None
    row_weights: PerReplica | None = None
    repeated: Repeated | None = None

    def of_one_step(self) -> StepArguments:
        """What a repeated step is traced with: shapes of one step. Others' arguments are their own."""
        if self.repeated is None:
            return self
        leaves = [_without_steps(leaf) if i in self.repeated.leaves else leaf for i, leaf in enumerate(self.leaves)]
        return replace(self, leaves=leaves, repeated=None)

    def at(self, step: int) -> StepArguments:
        """The arguments of one of the repeated steps."""
        assert self.repeated is not None
        leaves = [_at_step(leaf, step) if i in self.repeated.leaves else leaf for i, leaf in enumerate(self.leaves)]
        return replace(self, leaves=leaves, repeated=None)

    @property
    def own_leaves(self) -> list[Any]:
        """The leaves of the tree."""
        return self.leaves[:-1] if self.row_weights is not None else self.leaves

    @property
    def is_padded(self) -> bool:
        """Whether there are rows that do not count."""
        weights = self.row_weights
        if weights is None or weights.rows is None or weights.stacked is None:
            return False
        return min(weights.rows) < weights.stacked.shape[-1]

    @property
    def is_ragged(self) -> bool:
        """True when replicas' shapes differ, or some arguments are Python objects per replica."""
        return "ragged" in self.kinds

    def own_signature(self, replica: int) -> Hashable:
        """Equal for replicas whose steps are the same program: shapes and objects of the ragged leaves."""
        ragged = (leaf for leaf, kind in zip(self.leaves, self.kinds, strict=True) if kind == "ragged")
        return tuple(_key(leaf.values[replica]) for leaf in ragged)

    def is_traced(self, index: int, replica: int | None) -> bool:
        """Tells an input of the program (of that replica) from a part of it."""
        if self.kinds[index] != "ragged":
            return self.kinds[index] != "static"
        return is_array_or_number(component_of(self.leaves[index], replica))


def flatten_arguments(
    group: DeviceGroup, args: Sequence[Any], kwargs: dict[str, Any], known: KnownTrees | None = None
) -> StepArguments:
    """Flattens and classifies the arguments of ``run``; MissingReplicaError for values of another replica count."""
    leaves, tree = jax.tree.flatten((tuple(args), kwargs))
    if not _MAY_HOLD_SLICES.isdisjoint(map(type, leaves)):
        leaves, tree = jax.tree.flatten(jax.tree.unflatten(tree, map(_as_parts, leaves)))
    count = len(leaves)
    if count < MANY_LEAVES:
        told = _tell_apart(group, leaves, range(count))
        _add_row_weights(told, leaves)
        objects = _changeable_objects(leaves, told.kinds) if told.has_objects else []
        return StepArguments(
            tree, leaves, tuple(told.kinds), (tree, *told.keys), told.rows, objects, None, told.weights
        )
    known = known or KnownTrees()
    found = known.find(tree, leaves)
    if found is None:
        found = _learn(group, known, tree, leaves)
    told = _tell_apart(group, leaves, found.others)
    positions = [*found.others, *_add_row_weights(told, leaves)]
    kinds: list[LeafKind] = ["plain"] * len(leaves)
    for position, kind in zip(positions, told.kinds, strict=True):
        kinds[position] = kind
    objects = _changeable_objects(leaves, kinds) if told.has_objects else []
    others = positions if found.are_on(group.replicated_sharding, leaves) else None
    return StepArguments(
        tree, leaves, tuple(kinds), (tree, found.key, *told.keys), told.rows, objects, others, told.weights
    )


def _learn(group: DeviceGroup, known: KnownTrees, tree: Any, leaves: list[Any]) -> KnownTree:
    arrays = [
        i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
    ]
    return known.learn(tree, leaves, arrays, _tell_apart(group, leaves, arrays).keys)


class _Told:
    """What the leaves at some positions are."""

    __slots__ = ("has_objects", "keys", "kinds", "rows", "weights")

    def __init__(self) -> None:
        self.kinds: list[LeafKind] = []
        self.keys: list[Hashable] = []
        self.rows: tuple[int, ...] | None = None
        self.has_objects = False
        self.weights: PerReplica | None = None


def _tell_apart(group: DeviceGroup, leaves: list[Any], positions: Sequence[int]) -> _Told:
    """Kinds and keys of the leaves at ``positions``, which become what a step takes."""
    told = _Told()
    kinds, keys, num_replicas = told.kinds, told.keys, group.size
    for position in positions:
        leaf = leaves[position]
        if isinstance(leaf, Mirrored):
            leaf = leaves[position] = leaf.value
        if isinstance(leaf, PerReplica):
            if leaf.filled is not None:
                leaf = leaves[position] = _fill_again(leaf)
            if leaf.row_weights is not None and told.weights is None:
                told.weights, told.rows = leaf.row_weights, leaf.row_weights.rows
            if leaf.stacked is None and group.stacks_values:
                leaf = leaves[position] = stack_if_regular(group, leaf)
            told.rows = leaf.rows if told.rows is None else told.rows
            stacked = leaf.stacked
            if stacked is not None and stacked.shape[0] == num_replicas:  # as most are: no further call
                kinds.append("stacked")
                keys.append((stacked.shape, stacked.dtype))
                continue
        kind, key = _classify(leaf, num_replicas)
        told.has_objects = told.has_objects or kind == "static" or kind == "ragged"
        kinds.append(kind)
        keys.append(key)
    return told


def _fill_again(leaf: PerReplica) -> PerReplica:
    """True rows of a padded batch as the array that they were cut from: the next step is the program that it was."""
    filled = PerReplica(leaf.filled, None, leaf.rows)
    filled.row_weights = leaf.row_weights
    return filled


def _add_row_weights(told: _Told, leaves: list[Any]) -> Sequence[int]:
    """The weights of a batch's rows are one more leaf, the last; gives its position."""
    if told.weights is None or told.weights.stacked is None:
        return ()
    leaves.append(told.weights)
    told.kinds.append("stacked")
    told.keys.append(("row weights", told.weights.stacked.shape))
    return (len(leaves) - 1,)


def repeat_arguments(arguments: StepArguments, batch: Any, room: int, first: int, stop: int) -> StepArguments:
    """The arguments of a step that is done for the batches ``first`` to ``stop`` of those in ``batch``."""
    ids = set(map(id, jax.tree.leaves(batch)))
    leaves = frozenset(i for i, leaf in enumerate(arguments.leaves) if id(leaf) in ids or leaf is arguments.row_weights)
    signature = (*arguments.signature, "repeated", leaves, room)
    return replace(arguments, signature=signature, repeated=Repeated(leaves, room, first, stop))


def _without_steps(leaf: PerReplica) -> PerReplica:
    assert leaf.stacked is not None
    replicas, _, *shape = leaf.stacked.shape
    one: Any = jax.ShapeDtypeStruct((replicas, *shape), leaf.stacked.dtype)
    return PerReplica(one, None, leaf.rows)


def _at_step(leaf: PerReplica, step: int) -> PerReplica:
    assert leaf.stacked is not None
    return PerReplica(leaf.stacked[:, step], None, leaf.rows)


def _changeable_objects(leaves: Sequence[Any], kinds: Sequence[LeafKind]) -> list[Any]:
    found = []
    for leaf, kind in zip(leaves, kinds, strict=True):
        if kind == "static":
            found.append(leaf)
        elif kind == "ragged":
            found += [value for value in leaf.values if not is_array_or_number(value)]
    return [value for value in found if not isinstance(value, _CONSTANTS)]


def _as_parts(leaf: Any) -> Any:
    """Rows of a distributed value as IndexedSlices of distributed values, which a step can take in."""
    if isinstance(leaf, PerReplicaSlices):
        return IndexedSlices(*leaf.parts(), leaf.dense_shape)
    return leaf.value if isinstance(leaf, Mirrored) and is_slices(leaf.value) else leaf


def component_of(leaf: Any, replica: int | None) -> Any:
    """The replica's component of a ragged value; any other leaf as it is."""
    if isinstance(leaf, PerReplica) and leaf.stacked is None and replica is not None:
        return leaf.values[replica]
    return leaf


def abstract(leaf: Any) -> Any:
    """Shape and dtype of one replica's view of a leaf, to trace with; Python numbers stay, and stay weakly typed."""
    if isinstance(leaf, PerReplica):
        assert leaf.stacked is not None
        return jax.ShapeDtypeStruct(leaf.stacked.shape[1:], leaf.stacked.dtype)
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))
    if isinstance(leaf, _PYTHON_NUMBERS) and not isinstance(leaf, np.generic):
        return leaf
    array = check_host_array(leaf)
    return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))


def is_array_or_number(leaf: Any) -> bool:
    """Can it be an input of a program? Bools, strings, None, callables and objects are part of the program."""
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return jnp.issubdtype(leaf.dtype, jax.dtypes.extended) or leaf.dtype.kind not in "OSUTmM"
    return isinstance(leaf, _PYTHON_NUMBERS) and not isinstance(leaf, bool)


def stack_if_regular(group: DeviceGroup, value: PerReplica) -> PerReplica:
    """Equal shapes and dtypes as one stacked array, so that one program can serve all replicas; else as it is.

    The row table of all replicas decides first: other hosts must come to the same answer.
    """
    components = value.values
    if value.rows is not None and len(set(value.rows)) > 1:
        return value
    if not all(is_array_or_number(component) for component in components):
        return value
    if len(components) != len(group.local_replicas) or value.num_replicas != group.size:
        return value
    if len({(np.shape(component), _dtype(component)) for component in components}) > 1:
        return value
    return PerReplica(group.stack_copies(components), components, value.rows)


def _dtype(component: Any) -> Any:
    return component.dtype if hasattr(component, "dtype") else np.asarray(component).dtype


def static_key(value: Any) -> Hashable:
    """Equal keys, equal programs: by value where that can't change, else by identity."""
    if isinstance(value, _CONSTANTS):
        return (type(value), value)
    return (type(value), id(value))


def _classify(leaf: Any, num_replicas: int) -> tuple[LeafKind, Hashable]:
    if isinstance(leaf, PerReplica):
        check_replicas(leaf, num_replicas)
        return "ragged", tuple(map(_key, leaf.values))
    if isinstance(leaf, jax.core.Tracer) and not is_abstract():
        raise ContextError(
            f"run was called inside a traced function (jit, grad, ...) with {leaf}; call it outside: run compiles the "
            "step itself"
        )
    if isinstance(leaf, jax.Array):
        return "plain", (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False))
    return "plain" if is_array_or_number(leaf) else "static", _key(leaf)


def _key(leaf: Any) -> Hashable:
    if not is_array_or_number(leaf):
        return static_key(leaf)
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False))
    return ("number", type(leaf))
