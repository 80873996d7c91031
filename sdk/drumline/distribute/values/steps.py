"""Results of several steps as one: every leaf has a leading axis, an entry per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from drumline.distribute.values.per_replica import PerReplica


def lift_step(result: Any) -> Any:
    """One step's results with the axis."""
    return jax.tree.map(_lift, result)


def join_steps(results: Sequence[Any]) -> Any:
    """Results with the axis, one after the other. A leaf whose shape differs between steps becomes a tuple of them;
    of what is no array the last step's stays.
    """
    if len(results) == 1:
        return results[0]
    return jax.tree.map(lambda *parts: _join(parts), *results)


def stack_steps(batches: Sequence[Any], room: int) -> Any:
    """Batches that lie on the devices as one nest of [replicas, room, ...] leaves; None where they can't be."""
    nests = [jax.tree.flatten(batch) for batch in batches]
    columns = list(zip(*(leaves for leaves, _ in nests), strict=True))
    missing = room - len(batches)
    stacked = []
    for column in columns:
        arrays = [leaf.stacked for leaf in column]
        stacked.append(PerReplica(_stack([*arrays, *[arrays[-1]] * missing]), None, column[0].rows))
        weights = column[0].row_weights
        if weights is not None:
            repeated = PerReplica(_stack([weights.stacked] * room), None, weights.rows)
            stacked[-1].row_weights = repeated
    return jax.tree.unflatten(nests[0][1], stacked)


def shapes_of(batch: Any) -> Any:
    """Equal for batches that can be stacked; None for a batch that no array over the replicas holds."""
    leaves, tree = jax.tree.flatten(batch)
    if not leaves or not all(isinstance(leaf, PerReplica) and leaf.stacked is not None for leaf in leaves):
        return None
    weights = next((leaf.row_weights for leaf in leaves if leaf.row_weights is not None), None)
    if weights is not None and weights.rows != leaves[0].rows:  # padded: a step of its own
        return None
    return tree, weights is None, *((leaf.stacked.shape, leaf.stacked.dtype, leaf.rows) for leaf in leaves)


@jax.jit
def _stack(arrays: list[jax.Array]) -> jax.Array:
    return jnp.stack(arrays, axis=1)


def _lift(leaf: Any) -> Any:
    if isinstance(leaf, PerReplica):
        if leaf.stacked is not None:
            return _as_steps(leaf.stacked[:, None], leaf)
        return leaf.map(lambda component: jnp.asarray(component)[None])
    return leaf[None] if isinstance(leaf, jax.Array) else leaf


def _join(parts: tuple[Any, ...]) -> Any:
    if any(isinstance(part, tuple) for part in parts):
        return tuple(step for part in parts for step in (part if isinstance(part, tuple) else _entries(part)))
    if all(isinstance(part, PerReplica) and part.stacked is not None for part in parts):
        shapes = {(part.stacked.shape[0], *part.stacked.shape[2:]) for part in parts}
        if len(shapes) == 1:
            return _as_steps(jnp.concatenate([part.stacked for part in parts], axis=1), parts[-1])
    elif all(isinstance(part, jax.Array) for part in parts):
        if len({part.shape[1:] for part in parts}) == 1:
            return jnp.concatenate(parts)
    elif not isinstance(parts[-1], PerReplica):
        return parts[-1]
    elif _same_components(parts):
        columns = zip(*(part.values for part in parts), strict=True)
        return PerReplica.from_components([jnp.concatenate(_at_one_home(column)) for column in columns])
    return tuple(step for part in parts for step in _entries(part))


def _same_components(parts: Sequence[PerReplica]) -> bool:
    return len({component.shape[1:] for part in parts for component in part.values}) == 1


def _entries(part: Any) -> list[Any]:
    if not isinstance(part, PerReplica):
        return list(part)
    if part.stacked is not None:
        return [PerReplica.from_stacked(part.stacked[:, i]) for i in range(part.stacked.shape[1])]
    return [part.map(lambda component, i=i: component[i]) for i in range(len(part.values[0]))]


def _at_one_home(column: Sequence[Any]) -> list[Any]:
    home = next(iter(column[0].devices()))
    return [jax.device_put(entries, home) for entries in column]


def _as_steps(stacked: jax.Array, like: PerReplica) -> PerReplica:
    value = PerReplica.from_stacked(stacked)
    value.batch_rows = like.batch_rows
    return value
