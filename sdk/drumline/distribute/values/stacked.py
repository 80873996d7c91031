"""Arrays [replicas, ...] over a mesh: how they get there, and programs that lay them out otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from drumline.distribute.values.indexed_slices import IndexedSlices


def place_stacked(batch: Any, sharding: NamedSharding) -> jax.Array:
    """A host array [replicas, ...] that each process has whole, each replica's part on its devices."""
    if sharding.is_fully_addressable:
        placed: jax.Array = jax.device_put(batch, sharding)
        return placed
    # device_put would compare it over all processes, by a collective.
    return jax.make_array_from_callback(batch.shape, sharding, lambda index: batch[index])


def reshard(array: jax.Array, sharding: NamedSharding) -> jax.Array:
    """An array over several processes laid out otherwise; all of them ask for it."""
    return array if array.sharding == sharding else _reshard_fn(sharding)(array)


@lru_cache(maxsize=64)
def _reshard_fn(sharding: NamedSharding) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda array: array, out_shardings=sharding)


@lru_cache(maxsize=64)
def dense_fn(shape: tuple[int, ...] | None) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The program that makes each replica's rows an array of ``shape``."""
    return jax.jit(jax.vmap(lambda values, indices: IndexedSlices(values, indices, shape).to_dense(shape)))


@lru_cache(maxsize=64)
def concatenate_fn(sharding: Any, axis: int) -> Callable[[jax.Array], jax.Array]:
    """The program that puts the replicas' arrays one after the other along ``axis``, split over the replicas."""

    def concatenate(stacked: jax.Array) -> jax.Array:
        moved = jax.numpy.moveaxis(stacked, 0, axis)
        shape = moved.shape
        return moved.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])

    if not isinstance(sharding, NamedSharding):
        return jax.jit(concatenate)
    out = NamedSharding(sharding.mesh, PartitionSpec(*(None,) * axis, sharding.mesh.axis_names[0]))
    return jax.jit(concatenate, out_shardings=out)
