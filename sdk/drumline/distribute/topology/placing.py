"""Packs the blocks of a computation's replicas into a mesh of cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.topology.int_arrays import IntArray, int_array, shortened
from drumline.distribute.topology.rings import ring


@dataclass(frozen=True)
class Computation:
    """Replicas, each a block of ``shape`` cores that lie ``stride`` apart, on a mesh; all along (x, y, z, core)."""

    mesh: list[int]
    shape: list[int]
    stride: list[int]
    num_replicas: int

    @classmethod
    def of(cls, mesh: list[int], shape: Any, stride: Any, num_replicas: int) -> Computation:
        """Checks that block and replicas fit the mesh; InvalidValueError where they don't."""
        computation = cls(
            mesh,
            _extents("computation_shape", shape, len(mesh)),
            _extents("computation_stride", stride, len(mesh)),
            num_replicas,
        )
        if any(span > size for span, size in zip(computation.footprint, mesh, strict=True)):
            raise InvalidValueError(
                f"a block of shape {computation.shape} and stride {computation.stride} spans {computation.footprint} "
                f"cores, which does not fit the mesh {mesh}"
            )
        most = math.prod(computation.capacity)
        if num_replicas > most:
            raise InvalidValueError(
                f"{num_replicas} replicas of shape {computation.shape} and stride {computation.stride} do not fit the "
                f"mesh {mesh}; at most {most} do"
            )
        return computation

    @property
    def footprint(self) -> list[int]:
        """The cores that a block spans along each axis, those between its own included."""
        return [size * step for size, step in zip(self.shape, self.stride, strict=True)]

    @property
    def capacity(self) -> list[int]:
        """How many replicas fit along each axis: with a stride, blocks lie inside one another."""
        spans = zip(self.mesh, self.footprint, self.stride, strict=True)
        return [size // span * step for size, span, step in spans]

    @property
    def cores(self) -> int:
        """How many cores a replica has."""
        return math.prod(self.shape)

    def fills_whole_chips(self) -> bool:
        """Whether replicas own whole chips without a stride and fill the mesh, as rings need it."""
        whole_chips = self.shape[-1] == self.mesh[-1]
        return whole_chips and math.prod(self.stride) == 1 and self.num_replicas == math.prod(self.capacity)

    def replica_shape(self) -> list[int]:
        """How many replicas lie along each axis, as near to a cube as fits.

        The scarcest axis is filled first, so that what remains always fits; of equal ones the cores of a chip come
        first, then x, so that neighbours share a chip and a host.
        """
        capacity, rank = self.capacity, len(self.mesh)
        counts, remaining = [0] * rank, self.num_replicas
        for filled, axis in enumerate(sorted(range(rank), key=lambda axis: (capacity[axis], (axis + 1) % rank))):
            cube = math.ceil(remaining ** (1.0 / (rank - filled)))
            counts[axis] = min(cube, capacity[axis])
            remaining = -(-remaining // max(counts[axis], 1))
        return counts


def place_in_mesh(computation: Computation) -> IntArray:
    """[replica, core, 4]: replicas core by core, then along x, y, z; in a replica z fastest but for the cores."""
    counts = computation.replica_shape()
    block = [range(0, size * step, step) for size, step in zip(computation.shape, computation.stride, strict=True)]
    inside = np.array(list(product(*block)), np.int32)
    starts = [_start(computation, replica, counts) for replica in range(computation.num_replicas)]
    return np.array(starts, np.int32).reshape(-1, 1, len(counts)) + inside


def place_in_rings(computation: Computation) -> IntArray:
    """[replica, core, 4]: replicas along a ring of blocks, the chips of each along a ring, cores of a chip together."""
    *block, cores = computation.shape
    starts = np.array(ring(*computation.replica_shape()[:-1]), np.int32) * np.array(block, np.int32)
    chips = starts[:, np.newaxis] + np.array(ring(*block), np.int32)
    numbers = np.broadcast_to(np.arange(cores, dtype=np.int32)[:, np.newaxis], (*chips.shape[:2], cores, 1))
    coordinates = np.concatenate([np.repeat(chips[:, :, np.newaxis], cores, axis=2), numbers], axis=-1)
    return coordinates.reshape(len(starts), computation.cores, len(computation.mesh))


def place_in_task_order(computation: Computation, device_coordinates: IntArray) -> IntArray:
    """[replica, core, 4]: devices as the tasks list them, for a slice with missing chips."""
    if math.prod(computation.stride) != 1:
        raise InvalidValueError(
            f"computation_stride {computation.stride} can't be kept on a slice with missing chips; leave it out"
        )
    present = device_coordinates.reshape(-1, len(computation.mesh))
    needed = computation.num_replicas * computation.cores
    if needed > len(present):
        raise InvalidValueError(
            f"{computation.num_replicas} replicas of {computation.cores} cores need {needed} devices; the slice has "
            f"{len(present)}, others are missing"
        )
    return present[:needed].reshape(computation.num_replicas, computation.cores, len(computation.mesh))


def _start(computation: Computation, replica: int, counts: list[int]) -> list[int]:
    """The mesh coordinates of a replica's first core."""
    *chip_axes, core_axis = range(len(counts))
    start, rest = [0] * len(counts), replica
    for axis in (core_axis, *chip_axes):
        rest, position = divmod(rest, counts[axis])
        block, offset = divmod(position, computation.stride[axis])
        start[axis] = block * computation.footprint[axis] + offset
    return start


def _extents(name: str, value: Sequence[int] | None, rank: int) -> list[int]:
    extents = np.ones(rank, np.int32) if value is None else int_array(name, value)
    if extents.shape != (rank,) or (extents < 1).any():
        raise InvalidValueError(f"{name} must be {rank} positive numbers (x, y, z, core); got {shortened(value)}")
    numbers: list[int] = extents.tolist()
    return numbers
