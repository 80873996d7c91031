"""Packs the blocks of a computation's replicas into a mesh of cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from drumline.slices.errors import SliceError
from drumline.slices.rings import ring

MESH_RANK = 4
"""(x, y, z, core): chips in three dimensions and the cores of a chip."""
Place = tuple[int, int, int, int]
"""Where a core is: (x, y, z, core)."""
Order = Literal["auto", "ring", "mesh"]
"""How replicas follow one another over the mesh."""


@dataclass(frozen=True)
class Computation:
    """Replicas, each a block of ``shape`` cores that lie ``stride`` apart, on a mesh; all along (x, y, z, core)."""

    mesh: tuple[int, ...]
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    num_replicas: int

    @classmethod
    def of(
        cls, mesh: Sequence[int], shape: Sequence[int] | None, stride: Sequence[int] | None, num_replicas: int
    ) -> Computation:
        """Checks that block and replicas fit the mesh; SliceError where they don't."""
        computation = cls(
            tuple(mesh), extents("computation_shape", shape), extents("computation_stride", stride), num_replicas
        )
        if any(span > size for span, size in zip(computation.footprint, mesh, strict=True)):
            raise SliceError(
                f"a block of shape {list(computation.shape)} and stride {list(computation.stride)} spans "
                f"{computation.footprint} cores, which does not fit the mesh {list(mesh)}"
            )
        most = math.prod(computation.capacity)
        if num_replicas > most:
            raise SliceError(
                f"{num_replicas} replicas of shape {list(computation.shape)} and stride {list(computation.stride)} do "
                f"not fit the mesh {list(mesh)}; at most {most} do"
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

    def place(self, order: Order = "auto") -> list[list[Place]]:
        """[replica][core]: where each core is. SliceError for rings where blocks do not fill the mesh with whole chips.

        Along rings of neighbouring chips where `order` has them; "auto" takes them where they are possible.
        """
        if order == "ring" and not self.fills_whole_chips():
            raise SliceError(
                f"device_order_mode=RING needs blocks of whole chips, without stride, that fill the mesh: shape "
                f"{list(self.shape)} and {self.num_replicas} replicas do not fill {list(self.mesh)}; use AUTO or MESH"
            )
        in_rings = order != "mesh" and self.fills_whole_chips()
        return _place_in_rings(self) if in_rings else _place_in_mesh(self)


def place_in_task_order(computation: Computation, present: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """[replica][core]: devices as the tasks list them, for a slice with missing chips."""
    if math.prod(computation.stride) != 1:
        raise SliceError(
            f"computation_stride {list(computation.stride)} can't be kept on a slice with missing chips; leave it out"
        )
    needed = computation.num_replicas * computation.cores
    if needed > len(present):
        raise SliceError(
            f"{computation.num_replicas} replicas of {computation.cores} cores need {needed} devices; the slice has "
            f"{len(present)}, others are missing"
        )
    return [list(present[start : start + computation.cores]) for start in range(0, needed, computation.cores)]


def extents(name: str, value: Sequence[int] | None) -> tuple[int, ...]:
    """``value`` along (x, y, z, core), 1 each where it is None; SliceError for other than four positive numbers."""
    numbers = (1,) * MESH_RANK if value is None else tuple(value)
    if len(numbers) != MESH_RANK or min(numbers) < 1:
        written = str(list(numbers[:8]))
        raise SliceError(f"{name} must be {MESH_RANK} positive numbers (x, y, z, core); got {written}")
    return numbers


def _place_in_mesh(computation: Computation) -> list[list[Place]]:
    """Replicas core by core, then along x, y, z; in a replica z fastest but for the cores."""
    counts = computation.replica_shape()
    block = [range(0, size * step, step) for size, step in zip(computation.shape, computation.stride, strict=True)]
    inside = list(product(*block))
    return [
        [_move(start, offset) for offset in inside]
        for start in (_start(computation, replica, counts) for replica in range(computation.num_replicas))
    ]


def _place_in_rings(computation: Computation) -> list[list[Place]]:
    """Replicas along a ring of blocks, the chips of each along a ring, cores of a chip together."""
    *block, cores = computation.shape
    x_block, y_block, z_block = block
    x_count, y_count, z_count, _ = computation.replica_shape()
    inside = [(*chip, core) for chip in ring(x_block, y_block, z_block) for core in range(cores)]
    return [
        [_move((x * x_block, y * y_block, z * z_block, 0), offset) for offset in inside]
        for x, y, z in ring(x_count, y_count, z_count)
    ]


def _move(start: Sequence[int], offset: Sequence[int]) -> Place:
    x, y, z, core = (begin + step for begin, step in zip(start, offset, strict=True))
    return x, y, z, core


def _start(computation: Computation, replica: int, counts: list[int]) -> list[int]:
    """The mesh coordinates of a replica's first core."""
    *chip_axes, core_axis = range(len(counts))
    start, rest = [0] * len(counts), replica
    for axis in (core_axis, *chip_axes):
        rest, position = divmod(rest, counts[axis])
        block, offset = divmod(position, computation.stride[axis])
        start[axis] = block * computation.footprint[axis] + offset
    return start
