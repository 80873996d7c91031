"""Brings host steps onto a strategy's devices as per-replica values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import jax
import numpy as np
from jax.sharding import NamedSharding

from drumline.distribute.base.runtime import check_host_array, is_abstract
from drumline.distribute.cluster.exchange import Exchange
from drumline.distribute.input.steps import CutBatch, OwnPieces, Step
from drumline.distribute.values.per_replica import PerReplica

Leaf: TypeAlias = "np.ndarray[Any, Any]"

_HOST_ONLY_KINDS = "OSUMm"  # strings, objects and times: no device holds them


class InputTarget(Protocol):
    """What the input side needs of a strategy."""

    #: Do some devices belong to other processes?
    has_foreign_devices: bool
    #: The sizes of the mesh axes within a replica; empty where each has one device.
    logical_axes: dict[str, int]
    #: The processes, ascending; the replicas of this one; how they tell each other something.
    processes: tuple[int, ...]
    local_replicas: tuple[int, ...]
    exchange: Exchange | None

    def report_input_wait(self, begins: bool) -> None:
        """The program asks for its next batch, or has it."""

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

    @property
    def replicated_sharding(self) -> NamedSharding:
        """The whole array on every device."""


class Placer:
    """Makes nests of PerReplica out of host steps; bare arrays when there is one replica.

    All arrays of a step go by one ``device_put``: a call per array costs as much as the copy of a small one.
    """

    def __init__(self, target: InputTarget, *, to_device: bool) -> None:
        self._replicas = target.num_replicas_in_sync
        self._devices = list(target.devices)
        self._one_platform = len({device.platform for device in target.devices}) == 1
        self._split = target.batch_sharding if self._one_platform else None
        self._whole = target.replicated_sharding
        self._to_device = to_device
        self._row_weights: dict[tuple[tuple[int, ...], int], PerReplica] = {}
        self._own = target.local_replicas
        self._stack = target.stack_copies

    def __call__(self, step: Step) -> Any:
        """The placed step."""
        if isinstance(step, CutBatch):
            leaves, tree = jax.tree.flatten(step.batch)
            rows = step.rows
            if step.counted is not None:
                placed = self._even(leaves, rows)
                weights = self._weights_of(step.counted, rows[0])
                for value in placed:
                    value.row_weights = weights
                return jax.tree.unflatten(tree, placed)
            if self._replicas == 1:
                return jax.tree.unflatten(tree, self._bare(leaves))
            return jax.tree.unflatten(
                tree, self._even(leaves, rows) if len(set(rows)) == 1 else self._cut_ragged(leaves, rows)
            )
        if isinstance(step, OwnPieces):
            return self._own_step(step)
        if self._replicas == 1:
            leaves, tree = jax.tree.flatten(step.elements[0])
            return jax.tree.unflatten(tree, self._bare(leaves))
        nests = [jax.tree.flatten(element) for element in step.elements]
        return jax.tree.unflatten(nests[0][1], self._pieces(list(zip(*(leaves for leaves, _ in nests), strict=True))))

    def _weights_of(self, counted: tuple[int, ...], rows: int) -> PerReplica:
        """[replicas, rows]: 1 for rows that count, 0 for those that only fill up."""
        weights = self._row_weights.get((counted, rows))
        if weights is None:
            host = (np.arange(rows) < np.asarray(counted)[:, None]).astype(np.float32)
            placed = self._stack([host[replica] for replica in self._own])
            weights = self._row_weights[counted, rows] = PerReplica(placed, None, counted)
        return weights

    def _own_step(self, step: OwnPieces) -> Any:
        placed = jax.tree.map(lambda *leaves: self._own_pieces(leaves), *step.elements)
        if step.counted is not None:
            leaves = jax.tree.leaves(placed)
            rows = next(len(leaf) for leaf in jax.tree.leaves(step.elements[0]))
            for value in leaves:
                value.row_weights = self._weights_of(step.counted, rows)
        return placed

    def can_stack(self, step: Step) -> bool:
        """Whether steps like this one fit one array [replicas, steps, ...] per leaf."""
        if not self._to_device or not self._one_platform or isinstance(step, OwnPieces):
            return False
        leaves = jax.tree.leaves(step.batch if isinstance(step, CutBatch) else step.elements)
        if any(leaf.dtype.kind in _HOST_ONLY_KINDS for leaf in leaves):
            return False
        if isinstance(step, CutBatch):
            return len(set(step.rows)) == 1 and not step.is_padded
        return all(map(_are_alike, zip(*map(jax.tree.leaves, step.elements), strict=True)))

    def stack(self, steps: Sequence[Step], room: int) -> Any:
        """Steps that ``can_stack``, of equal shapes, and zeros up to ``room`` of them: leaves [replicas, room, ...]."""
        parts = [self._per_replica(step) for step in steps]
        columns = []
        for column in zip(*parts, strict=True):
            together = np.empty((self._replicas, room, *column[0].shape[1:]), column[0].dtype)
            for position, part in enumerate(column):
                together[:, position] = part
            together[:, len(column) :] = 0
            columns.append(together)
        rows = [(column.shape[2],) * self._replicas if column.ndim > 2 else None for column in columns]
        placed = list(map(PerReplica, self._put(columns, self._split), [None] * len(columns), rows))
        if isinstance(steps[0], CutBatch) and steps[0].counted is not None:
            ones = np.ones((self._replicas, room, steps[0].rows[0]), np.float32)
            weights = PerReplica(self._put([ones], self._split)[0], None, steps[0].rows)
            for value in placed:
                value.row_weights = weights
        example = steps[0].batch if isinstance(steps[0], CutBatch) else steps[0].elements[0]
        return jax.tree.unflatten(jax.tree.structure(example), placed)

    def _per_replica(self, step: Step) -> list[Leaf]:
        """A step's leaves as [replicas, ...]."""
        if isinstance(step, CutBatch):
            shape = (self._replicas, step.rows[0])
            return [leaf.reshape(*shape, *leaf.shape[1:]) for leaf in jax.tree.leaves(step.batch)]
        if len(step.elements) == 1:
            return [leaf[None] for leaf in jax.tree.leaves(step.elements[0])]
        return [np.stack(column) for column in zip(*map(jax.tree.leaves, step.elements), strict=True)]

    def _own_pieces(self, leaves: tuple[Leaf, ...]) -> PerReplica:
        """A leaf of each replica of this process, where others have some too."""
        if self._to_device and leaves[0].dtype.kind not in _HOST_ONLY_KINDS:
            return PerReplica.from_stacked(self._stack(leaves))
        rows = (len(leaves[0]),) * self._replicas if leaves[0].ndim else None
        return PerReplica.from_components(leaves, rows, self._replicas)

    def _bare(self, leaves: list[Leaf]) -> list[Any]:
        return self._put(leaves, self._whole)

    def _even(self, leaves: list[Leaf], rows: tuple[int, ...]) -> list[PerReplica]:
        """Leaves [global rows, ...], of which every replica has as many rows."""
        if not self._one_platform:
            return self._cut_ragged(leaves, rows)
        stacked = [_in_shape(leaf, (self._replicas, rows[0], *leaf.shape[1:])) for leaf in leaves]
        return [
            PerReplica(placed, None, rows)
            if isinstance(placed, jax.Array)
            else PerReplica.from_components(list(placed), rows)
            for placed in self._put(stacked, self._split)
        ]

    def _cut_ragged(self, leaves: list[Leaf], rows: tuple[int, ...]) -> list[PerReplica]:
        borders = np.cumsum(rows)[:-1]
        return self._components([(np.split(leaf, borders), rows) for leaf in leaves])

    def _pieces(self, columns: list[tuple[Leaf, ...]]) -> list[PerReplica]:
        """Columns of one leaf per replica."""
        if self._one_platform and all(map(_are_alike, columns)):
            stacked = self._put([_stack_column(column) for column in columns], self._split)
            return [
                PerReplica.from_stacked(placed)
                if isinstance(placed, jax.Array)
                else PerReplica.from_components(list(placed))
                for placed in stacked
            ]
        return self._components([(column, _row_table(column)) for column in columns])

    def _components(self, columns: list[tuple[Sequence[Leaf], tuple[int, ...] | None]]) -> list[PerReplica]:
        """A part of each column on each replica's device."""
        parts = [part for column, _ in columns for part in column]
        placed = iter(self._put(parts, self._devices * len(columns)))
        return [PerReplica.from_components([next(placed) for _ in column], rows) for column, rows in columns]

    def _put(self, leaves: list[Leaf], where: Any) -> list[Any]:
        """Leaves on the devices, but for those that no device holds. ``where``: one sharding, or a device for each."""
        if not self._to_device:
            return leaves
        fit = [leaf.dtype.kind not in _HOST_ONLY_KINDS for leaf in leaves]
        if all(fit):
            if is_abstract():
                return [jax.numpy.zeros(leaf.shape, check_host_array(leaf).dtype) for leaf in leaves]
            return list(jax.device_put([check_host_array(leaf) for leaf in leaves], where))
        chosen = [i for i, fits in enumerate(fit) if fits]
        targets = [where[i] for i in chosen] if isinstance(where, list) else where
        placed: list[Any] = list(leaves)
        for i, leaf in zip(chosen, self._put([leaves[i] for i in chosen], targets), strict=True):
            placed[i] = leaf
        return placed


def _in_shape(leaf: Leaf, shape: tuple[int, ...]) -> Leaf:
    """The rows of a batch by replica. On shapes no row is looked at: one zero stands for all of them."""
    return np.broadcast_to(np.zeros((), leaf.dtype), shape) if is_abstract() else leaf.reshape(shape)


def _stack_column(column: tuple[Leaf, ...]) -> Leaf:
    return _in_shape(column[0], (len(column), *column[0].shape)) if is_abstract() else np.stack(column)


def _are_alike(column: tuple[Leaf, ...]) -> bool:
    first = column[0]
    return all(leaf.shape == first.shape and leaf.dtype == first.dtype for leaf in column)


def _row_table(column: Sequence[Leaf]) -> tuple[int, ...] | None:
    return tuple(len(leaf) for leaf in column) if all(leaf.ndim for leaf in column) else None
