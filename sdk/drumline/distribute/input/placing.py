"""Brings host steps onto a strategy's devices as per-replica values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import jax
import numpy as np
from jax.sharding import NamedSharding

from drumline.distribute.cluster.exchange import Exchange
from drumline.distribute.input.steps import CutBatch, OwnPieces, Step
from drumline.distribute.values.per_replica import PerReplica
from drumline.distribute.values.placement import check_host_array

Leaf: TypeAlias = "np.ndarray[Any, Any]"

_HOST_ONLY_KINDS = "OSUMm"  # strings, objects and times: no device holds them


class InputTarget(Protocol):
    """What the input side needs of a strategy."""

    #: Do some devices belong to other processes?
    has_foreign_devices: bool
    #: The processes, ascending; the replicas of this one; how they tell each other something.
    processes: tuple[int, ...]
    local_replicas: tuple[int, ...]
    exchange: Exchange | None

    def stack_copies(self, copies: Sequence[Any]) -> jax.Array:
        """One element per replica of this process as an array [replicas, *shape] over all devices."""

    @property
    def pads_batches(self) -> bool:
        """Whether a replica may run on no rows in the last step."""

    @property
    def num_replicas_in_sync(self) -> int:
        """Replicas that step together."""

    @property
    def devices(self) -> tuple[jax.Device, ...]:
        """One device per replica."""

    @property
    def batch_sharding(self) -> NamedSharding:
        """Splits axis 0 over the replicas."""


class Placer:
    """Makes nests of PerReplica out of host steps; bare arrays when there is one replica."""

    def __init__(self, target: InputTarget, *, to_device: bool) -> None:
        self._replicas = target.num_replicas_in_sync
        self._devices = list(target.devices)
        one_platform = len({device.platform for device in target.devices}) == 1
        self._sharding = target.batch_sharding if one_platform else None
        self._to_device = to_device
        self._stack = target.stack_copies

    def __call__(self, step: Step) -> Any:
        """The placed step."""
        if self._replicas == 1:
            element = step.batch if isinstance(step, CutBatch) else step.elements[0]
            return jax.tree.map(self._single, element)
        if isinstance(step, OwnPieces):
            return jax.tree.map(lambda *leaves: self._own_pieces(leaves), *step.elements)
        if isinstance(step, CutBatch):
            return jax.tree.map(lambda leaf: self._cut(leaf, step.rows), step.batch)
        return jax.tree.map(lambda *leaves: self._pieces(leaves), *step.elements)

    def _single(self, leaf: Leaf) -> Any:
        return jax.device_put(check_host_array(leaf), self._devices[0]) if self._places(leaf) else leaf

    def _cut(self, leaf: Leaf, rows: tuple[int, ...]) -> PerReplica:
        if len(set(rows)) == 1 and self._sharding is not None and self._places(leaf):
            return PerReplica.from_batch(check_host_array(leaf), self._sharding)
        return self._components(np.split(leaf, np.cumsum(rows)[:-1]), rows)

    def _own_pieces(self, leaves: tuple[Leaf, ...]) -> PerReplica:
        if self._places(leaves[0]):
            return PerReplica.from_stacked(self._stack(leaves))
        rows = (len(leaves[0]),) * self._replicas if leaves[0].ndim else None
        return PerReplica.from_components(leaves, rows, self._replicas)

    def _pieces(self, leaves: tuple[Leaf, ...]) -> PerReplica:
        first = leaves[0]
        alike = all(leaf.shape == first.shape and leaf.dtype == first.dtype for leaf in leaves)
        if alike and self._sharding is not None and self._places(first):
            return PerReplica.from_stacked(jax.device_put(check_host_array(np.stack(leaves)), self._sharding))
        rows = tuple(len(leaf) for leaf in leaves) if all(leaf.ndim for leaf in leaves) else None
        return self._components(leaves, rows)

    def _components(self, parts: Sequence[Leaf], rows: tuple[int, ...] | None) -> PerReplica:
        if not self._places(parts[0]):
            return PerReplica.from_components(parts, rows)
        checked = [check_host_array(part) for part in parts]
        return PerReplica.from_components(jax.device_put(checked, self._devices), rows)

    def _places(self, leaf: Leaf) -> bool:
        return self._to_device and leaf.dtype.kind not in _HOST_ONLY_KINDS
