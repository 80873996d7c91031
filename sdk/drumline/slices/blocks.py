"""How a run's replicas lie on a mesh of cores: the block of each, and where all of them go."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Self, cast

from drumline.slices.errors import SliceError
from drumline.slices.known import KnownSlice
from drumline.slices.placing import MESH_RANK, Computation, Order, Place, extents


@dataclass(frozen=True, slots=True, order=True)
class Blocks:
    """The block of cores that each replica owns, and the slice that all of them fill together, if one was named."""

    shape: tuple[int, ...] = (1,) * MESH_RANK
    stride: tuple[int, ...] = (1,) * MESH_RANK
    order: str = "auto"
    tpu_slice: str = ""

    @classmethod
    def of(
        cls,
        shape: Sequence[int] | None,
        stride: Sequence[int] | None,
        order: str = "auto",
        tpu_slice: str | None = None,
    ) -> Self:
        """As a job says it. SliceError for other than four positive numbers, and for a slice that does not exist."""
        name = "" if tpu_slice is None else str(KnownSlice.parse(tpu_slice))
        return cls(extents("computation_shape", shape), extents("computation_stride", stride), order, name)

    @property
    def cores(self) -> int:
        """How many cores, which are a replica's logical devices, each block has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        shape, stride = ("x".join(map(str, numbers)) for numbers in (self.shape, self.stride))
        return f"{shape}/{stride}/{self.order}/{self.tpu_slice}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """What `str` wrote."""
        shape, stride, order, tpu_slice = text.split("/")
        return cls(tuple(map(int, shape.split("x"))), tuple(map(int, stride.split("x"))), order, tpu_slice)

    def places(self, replicas: int, mesh: Sequence[int] | None = None) -> list[list[Place]]:
        """[replica][core]: where each core is on the mesh: by default the named slice's, else a row of blocks.

        SliceError where the blocks do not fit it, or where it has more cores than they take.
        """
        cores = replicas * self.cores
        mesh = mesh or (KnownSlice.parse(self.tpu_slice).mesh_shape if self.tpu_slice else self._row(replicas))
        computation = Computation.of(mesh, self.shape, self.stride, replicas)
        if math.prod(mesh) != cores:
            raise SliceError(
                f"{replicas} replicas of {self.cores} devices take {cores}; {self.tpu_slice or list(mesh)} has "
                f"{math.prod(mesh)}: ask for {math.prod(mesh) // self.cores} replicas, or for another topology"
            )
        return computation.place(cast(Order, self.order))

    def _row(self, replicas: int) -> tuple[int, ...]:
        interleaved = math.prod(self.stride)
        if replicas % interleaved:
            raise SliceError(
                f"computation_stride {list(self.stride)} lays {interleaved} replicas into one another; {replicas} "
                "replicas do not fill such groups: ask for a multiple, or leave the stride out"
            )
        x, *others = (size * step for size, step in zip(self.shape, self.stride, strict=True))
        return (x * (replicas // interleaved), *others)


def find_places(free: Collection[Place], replicas: int, blocks: Blocks | None) -> list[list[Place]] | None:
    """[replica][core]: a box of free cores that the replicas' blocks fill; None where there is none.

    Without `blocks` each replica has one core, and the smallest box that holds all of them need not be full. Of several
    boxes the one nearest to a cube is taken, whole chips first, and the place nearest to the origin.
    """
    if len(free) < replicas * (blocks.cores if blocks else 1):
        return None
    return _find_places(frozenset(free), replicas, blocks)


@lru_cache(4096)  # hosts of one kind are alike, and a queue is looked at again and again
def _find_places(free: frozenset[Place], replicas: int, blocks: Blocks | None) -> list[list[Place]] | None:
    low = [min(place[axis] for place in free) for axis in range(MESH_RANK)]
    high = [max(place[axis] for place in free) for axis in range(MESH_RANK)]
    mesh = [top - bottom + 1 for bottom, top in zip(low, high, strict=True)]
    for box in _boxes(mesh, replicas, blocks):
        corner = next(_free_corners(free, low, high, box), None)
        if corner is not None:
            inside = _inside(box, replicas, blocks)
            return [[_move(corner, place) for place in replica] for replica in inside]
    return None


def find_places_over_hosts(
    free: Mapping[Place, str], replicas: int, blocks: Blocks, hosts: int = 0
) -> list[list[Place]] | None:
    """[replica][core]: a box of free cores of one slice, whose hosts `free` tells, that the replicas' blocks fill.

    Each replica lies on one host, and each host of the box has equally many of them, as the processes of a topology
    have. `hosts`: over just so many, 0 for any number. None where there is none; best first as in `find_places`.
    """
    if len(free) < replicas * blocks.cores:
        return None
    return _find_over_hosts(frozenset(free.items()), replicas, blocks, hosts)


@lru_cache(1024)
def _find_over_hosts(
    free: frozenset[tuple[Place, str]], replicas: int, blocks: Blocks, hosts: int
) -> list[list[Place]] | None:
    host_of = dict(free)
    places = frozenset(host_of)
    low = [min(place[axis] for place in places) for axis in range(MESH_RANK)]
    high = [max(place[axis] for place in places) for axis in range(MESH_RANK)]
    mesh = [top - bottom + 1 for bottom, top in zip(low, high, strict=True)]
    for box in _boxes(mesh, replicas, blocks):
        inside = _inside(box, replicas, blocks)
        for corner in _free_corners(places, low, high, box):
            found = [[_move(corner, place) for place in replica] for replica in inside]
            if _is_even(found, host_of, hosts):
                return found
    return None


def _is_even(replicas: Sequence[Sequence[Place]], host_of: Mapping[Place, str], hosts: int) -> bool:
    """Whether no replica has cores of two hosts, and every host has equally many replicas."""
    homes = [{host_of[place] for place in replica} for replica in replicas]
    if any(len(home) > 1 for home in homes):
        return False
    counts = Counter(host for home in homes for host in home)
    return len(set(counts.values())) == 1 and hosts in (0, len(counts))


def _boxes(mesh: Sequence[int], replicas: int, blocks: Blocks | None) -> list[tuple[int, ...]]:
    """Extents of boxes that hold the replicas, best first."""
    needed = replicas * (blocks.cores if blocks else 1)
    if blocks and blocks.tpu_slice:
        box = KnownSlice.parse(blocks.tpu_slice).mesh_shape
        fits = all(size <= most for size, most in zip(box, mesh, strict=True)) and math.prod(box) == needed
        return [box] if fits else []
    steps = [size * step for size, step in zip(blocks.shape, blocks.stride, strict=True)] if blocks else [1] * MESH_RANK
    axes = [range(step, most + 1, step) for step, most in zip(steps, mesh, strict=True)]
    boxes = [box for box in product(*axes) if (math.prod(box) == needed if blocks else math.prod(box) >= needed)]
    return sorted(boxes, key=lambda box: (math.prod(box), -box[3], max(box[:3]) - min(box[:3]), box[::-1]))


def _free_corners(
    free: frozenset[Place], low: Sequence[int], high: Sequence[int], box: Sequence[int]
) -> Iterator[Sequence[int]]:
    """Where such a box of free cores may begin, nearest to the origin first."""
    x, y, z, core = (range(bottom, top - size + 2) for bottom, top, size in zip(low, high, box, strict=True))
    cells = list(product(*map(range, box)))
    for corner in ((x0, y0, z0, core0) for z0, y0, x0, core0 in product(z, y, x, core)):
        if all(_move(corner, cell) in free for cell in cells):
            yield corner


def _inside(box: Sequence[int], replicas: int, blocks: Blocks | None) -> list[list[Place]]:
    """The cores of a box from its corner: as the blocks order them, else chip by chip, x fastest."""
    if blocks:
        return blocks.places(replicas, box)
    x, y, z, cores = box
    rows = product(range(z), range(y), range(x), range(cores))
    return [[(column, row, layer, core)] for layer, row, column, core in list(rows)[:replicas]]


def _move(corner: Sequence[int], place: Sequence[int]) -> Place:
    x, y, z, core = (begin + step for begin, step in zip(corner, place, strict=True))
    return x, y, z, core
