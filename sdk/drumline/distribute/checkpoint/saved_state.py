"""One state on disk: a pytree of variables, arrays, dataset iterators, numbers and strings.

Written by orbax; of several processes each writes its own part (``saved_parts``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.checkpoint import saved_tree
from drumline.distribute.checkpoint.saved_parts import Pieces, is_over_processes, parts_of, read_leaves, write_part
from drumline.distribute.errors import InvalidValueError
from drumline.distribute.values.per_replica import DistributedValue, Mirrored
from drumline.distribute.variables.variable import Variable


@runtime_checkable
class HasState(Protocol):
    """What tells its position and resumes from it, as iterators of distributed datasets do."""

    def state(self) -> Any:
        """Its place, as something JSON can hold."""

    def restore(self, state: Any) -> None:
        """Continues at a place that ``state`` told."""


def write_state(path: Path, state: Any) -> None:
    """Writes ``state`` into a new directory ``path``, which appears when it is whole. Replaces what is there.

    In a program of several processes: this one's part of it, which has to be complete in all before anybody reads it.
    InvalidValueError for variables without one value (synchronization "on_read", aggregation "none").
    """
    import orbax.checkpoint as ocp

    leaves = [_text_or_leaf(leaf) for leaf in jax.tree.leaves(state)]
    values = {i: _value_to_save(leaf) for i, leaf in enumerate(leaves) if not isinstance(leaf, str)}
    tree = saved_tree.describe(state, leaves)
    if jax.process_count() > 1:
        write_part(path, tree, {str(i): value for i, value in values.items()})
        return
    tree["empties"] = {str(i): (value.dtype.name, value.shape) for i, value in values.items() if not value.size}
    arrays = {_name(i): value for i, value in values.items() if value.size}
    parts = {"tree": ocp.args.JsonSave(tree)}
    if arrays:
        parts["leaves"] = ocp.args.StandardSave(arrays)
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save(path, args=ocp.args.Composite(**parts), force=True)


def read_state(path: Path, state: Any = None) -> Any:
    """``state`` with the values in ``path``; without a state the tree that was saved (see ``Checkpoints.restore``).

    Raises InvalidValueError for a state of another number of leaves, and for one of several processes that this
    number of processes can't resume from.
    """
    if parts := parts_of(path):
        tree, values = parts[0].tree, read_leaves(path, parts)
    else:
        tree, values = _read(path)
    if state is None:
        return saved_tree.rebuild(tree, [value.read() if isinstance(value, Pieces) else value for value in values])
    leaves, shape = jax.tree.flatten(state)
    if len(leaves) != len(values):
        raise InvalidValueError(
            f"the checkpoint {path} has {len(values)} leaves, the state to restore {len(leaves)}; "
            "pass a state of the structure that was saved, or none"
        )
    return jax.tree.unflatten(shape, [_restore_leaf(leaf, value) for leaf, value in zip(leaves, values, strict=True)])


def _read(path: Path) -> tuple[saved_tree.SavedTree, list[Any]]:
    """What one process wrote."""
    import orbax.checkpoint as ocp

    alone = ocp.options.MultiprocessingOptions(primary_host=jax.process_index(), active_processes={jax.process_index()})
    handler = ocp.CompositeCheckpointHandler(
        composite_options=ocp.CompositeOptions(multiprocessing_options=alone),
        tree=ocp.JsonCheckpointHandler(multiprocessing_options=alone),
        leaves=ocp.StandardCheckpointHandler(multiprocessing_options=alone),
    )
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
        tree = checkpointer.restore(path, args=ocp.args.Composite(tree=ocp.args.JsonRestore()))["tree"]
        empties = {i: np.empty(shape, jnp.dtype(name)) for i, (name, shape) in tree["empties"].items()}
        small = tree["texts"] | empties
        arrays: dict[str, Any] = {}
        if len(small) < len(tree["kinds"]):
            wanted = ocp.args.Composite(leaves=ocp.args.StandardRestore())
            arrays = checkpointer.restore(path, args=wanted)["leaves"]
    return tree, [small[str(i)] if str(i) in small else arrays[_name(i)] for i in range(len(tree["kinds"]))]


def name_checkpoint(path: Path, state: Any) -> None:
    """Lets the strategies of the variables in ``state`` name ``path`` when a step loses their values."""
    for leaf in jax.tree.leaves(state):
        if isinstance(leaf, Variable):
            leaf.strategy.last_checkpoint = str(path)


def _name(index: int) -> str:
    """Names under which leaves lie on disk: any pytree, the same on every version of its classes."""
    return f"{index:06d}"


def _text_or_leaf(leaf: Any) -> Any:
    if not isinstance(leaf, HasState):
        return leaf
    try:
        return json.dumps(leaf.state())
    except TypeError as error:
        raise InvalidValueError(f"the place of {leaf!r} can't be saved: {error}") from None


def _value_to_save(leaf: Any) -> Any:
    if isinstance(leaf, (Variable, Mirrored)):
        leaf = leaf.value
    elif isinstance(leaf, DistributedValue):
        raise InvalidValueError(f"{leaf!r} has a value per replica and none to save; reduce or gather it first")
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return leaf if is_over_processes(leaf) else np.asarray(leaf)


def _restore_leaf(leaf: Any, value: Any) -> Any:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _restore_leaf(jax.random.key_data(leaf), value)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    if is_over_processes(leaf):
        return jax.make_array_from_callback(value.shape, leaf.sharding, lambda index: value[index], dtype=value.dtype)
    if isinstance(value, Pieces):
        value = value.read()
    if isinstance(leaf, Variable):
        leaf.restore(value)
        return leaf
    if isinstance(leaf, HasState):
        leaf.restore(json.loads(value))
        return leaf
    if isinstance(leaf, Mirrored):
        return Mirrored(_restore_leaf(leaf.value, value))
    if isinstance(leaf, jax.Array):
        return jax.device_put(value, leaf.sharding)
    return type(leaf)(value.item()) if isinstance(leaf, (bool, int, float, complex)) else value
