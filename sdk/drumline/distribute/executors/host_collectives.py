"""What a collective does when the host brings one operand per replica together (lock-step executor)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from drumline.distribute.base.runtime import put
from drumline.distribute.combine.cross_device_ops import CrossDeviceOps
from drumline.distribute.combine.primitives import exact_quotient

_SUMS = frozenset({"psum", "psum_invariant", "replica_aggregate"})

HostCollective = Callable[[dict[str, Any], list[jax.Array], int], list[jax.Array]]


def run_collective(
    name: str, params: dict[str, Any], columns: list[list[Any]], ops: CrossDeviceOps, devices: Sequence[jax.Device]
) -> list[list[Any]]:
    """One result per value and replica, on its device. ``columns``: for each value one operand per replica, alike.

    ``ops`` make the sums over all replicas, of all values at once.
    """
    if name not in _SUMS or params.get("axis_index_groups") or params.get("op") == "ONLY_FIRST_REPLICA":
        return [_run_one(name, params, column, devices) for column in columns]
    placed = [
        [
            value if isinstance(value, jax.Array) else put(value, device)
            for value, device in zip(column, devices, strict=True)
        ]
        for column in columns
    ]
    totals = ops.sums_over_devices(placed, devices[0])
    if params.get("op") == "MEAN":
        totals = _means(totals, len(devices))
    copies = jax.device_put([totals] * len(devices), list(devices))
    return [[copy[k] for copy in copies] for k in range(len(columns))]


def _run_one(name: str, params: dict[str, Any], operands: list[Any], devices: Sequence[jax.Device]) -> list[Any]:
    groups = params.get("axis_index_groups") or [list(range(len(devices)))]
    results: list[Any] = [None] * len(devices)
    for group in groups:
        home = devices[group[0]]
        gathered = jax.device_put([operands[r] for r in group], home)
        made = _COLLECTIVES[name](params, gathered, len(group))
        placed = jax.device_put(made, [devices[r] for r in group])
        for replica, result in zip(group, placed, strict=True):
            results[replica] = result
    return results


@partial(jax.jit, static_argnums=1)
def _means(totals: list[jax.Array], count: int) -> list[jax.Array]:
    return [exact_quotient(total, count) for total in totals]


# Replica 0 first, one after the other, as AllReduceCrossDeviceOps adds on a host: the same bits from either.
@jax.jit
def _sum(values: list[jax.Array]) -> jax.Array:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


@jax.jit
def _max(values: list[jax.Array]) -> jax.Array:
    return jnp.stack(values).max(0)


@jax.jit
def _min(values: list[jax.Array]) -> jax.Array:
    return jnp.stack(values).min(0)


def _psum(params: dict[str, Any], values: list[jax.Array], size: int) -> list[jax.Array]:
    return [_sum(values)] * size


def _pmax(params: dict[str, Any], values: list[jax.Array], size: int) -> list[jax.Array]:
    return [_max(values)] * size


def _pmin(params: dict[str, Any], values: list[jax.Array], size: int) -> list[jax.Array]:
    return [_min(values)] * size


def _all_gather(params: dict[str, Any], values: list[jax.Array], size: int) -> list[jax.Array]:
    axis = params["all_gather_dimension"]
    gathered = jnp.concatenate(values, axis) if params["tiled"] else jnp.stack(values, axis)
    return [gathered] * size


def _reduce_scatter(params: dict[str, Any], values: list[jax.Array], size: int) -> list[jax.Array]:
    axis, total = params["scatter_dimension"], _sum(values)
    parts = jnp.split(total, size, axis)
    return parts if params["tiled"] else [jnp.squeeze(part, axis) for part in parts]


def _ppermute(params: dict[str, Any], values: list[jax.Array], size: int) -> list[jax.Array]:
    results = [jnp.zeros_like(value) for value in values]
    for source, destination in params["perm"]:
        results[destination] = values[source]
    return results


def _all_to_all(params: dict[str, Any], values: list[jax.Array], size: int) -> list[jax.Array]:
    split, concat = params["split_axis"], params["concat_axis"]
    pieces = [jnp.split(value, size, split) for value in values]
    if params["tiled"]:
        return [jnp.concatenate([mine[r] for mine in pieces], concat) for r in range(size)]
    return [jnp.stack([jnp.squeeze(mine[r], split) for mine in pieces], concat) for r in range(size)]


def _first(params: dict[str, Any], values: list[jax.Array], size: int) -> list[jax.Array]:
    return [values[0]] * size


_COLLECTIVES: dict[str, HostCollective] = {
    "psum": _psum,
    "psum_invariant": _psum,
    "pmax": _pmax,
    "pmin": _pmin,
    "all_gather": _all_gather,
    "all_gather_invariant": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "ppermute": _ppermute,
    "all_to_all": _all_to_all,
    "replica_aggregate": _first,
}
