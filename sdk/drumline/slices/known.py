"""Known TPU slices by name, v2 to TPU7x: their chips, cores and hosts, as the TPU compiler lays them out."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import product
from typing import Self

from drumline.slices.errors import SliceError

#: A name longer than this is none; the longest real one has 15 characters.
_MAX_NAME_CHARACTERS = 64
_SHAPE = re.compile(r"(?P<generation>[a-z0-9]+):(?P<chips>\d{1,4}(?:x\d{1,4}){0,2})", re.IGNORECASE | re.ASCII)
_ACCELERATOR_TYPE = re.compile(r"(?P<generation>[a-z0-9]+)-(?P<count>\d{1,6})", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Generation:
    """A kind of TPU.

    ``devices_per_chip``: how many devices JAX shows for a chip; 1 where its two cores work as one (megacore).
    ``cores_per_chip``: what the number in an accelerator type such as "v4-16" counts.
    ``dimensions``: of the network between chips. ``max_chips``: of one slice. ``kind``: what JAX calls its devices.
    ``peak_flops``: of one such device a second, of dense bfloat16 products, as its maker says of the chip.
    """

    name: str
    devices_per_chip: int
    cores_per_chip: int
    dimensions: int
    max_chips: int
    type_prefix: str
    kind: str
    peak_flops: float
    host_bounds: tuple[int, int, int] = (2, 2, 1)

    def wraps(self, chips: tuple[int, int, int]) -> tuple[bool, bool, bool]:
        """Along which of (x, y, z) a slice's last chip is linked to its first, as Google's documents describe it.

        A slice of three dimensions is a torus where it consists of cubes of 4 x 4 x 4 chips; one of two along an axis
        that is as long as its whole pod's.
        """
        if self.dimensions == 3:
            whole = all(size % _CUBE == 0 for size in chips)
            return whole, whole, whole
        x, y, _ = (size == math.isqrt(self.max_chips) for size in chips)
        return x, y, False


_CUBE = 4
"""Chips along an edge of what slices of three dimensions are put together from."""
GENERATIONS = {
    generation.name: generation
    for generation in (
        Generation("v2", 2, 2, 2, 16 * 16, "v2", "TPU v2", 22.5e12),
        Generation("v3", 2, 2, 2, 32 * 32, "v3", "TPU v3", 61.5e12),
        Generation("v4", 1, 2, 3, 16 * 16 * 16, "v4", "TPU v4", 275e12),
        Generation("v5e", 1, 1, 2, 16 * 16, "v5litepod", "TPU v5 lite", 197e12),
        Generation("v5p", 1, 2, 3, 16 * 16 * 24, "v5p", "TPU v5", 459e12),
        Generation("v6e", 1, 1, 2, 16 * 16, "v6e", "TPU v6 lite", 918e12),
        Generation("tpu7x", 2, 2, 3, 9216, "tpu7x", "TPU7x", 1153.5e12),
    )
}
_BY_TYPE = {generation.type_prefix: generation for generation in GENERATIONS.values()}


@dataclass(frozen=True)
class KnownSlice:
    """A slice of a TPU pod: a box of chips.

        tpu_slice = KnownSlice.parse("v4:2x2x4")
        tpu_slice.num_devices, tpu_slice.num_hosts  # (16, 4)

    ``chips``: along (x, y, z). ``host_bounds``: the box of chips that one host drives.
    """

    generation: Generation
    chips: tuple[int, int, int]
    host_bounds: tuple[int, int, int]

    @classmethod
    def parse(cls, name: str) -> Self:
        """A slice by its shape in chips, "v4:2x2x4" or "v5e:4x4", or by its accelerator type, "v4-32", "v5litepod-16".

        An accelerator type counts cores (v2, v3, v4, v5p, tpu7x) or chips (v5e, v6e) and stands for the most compact
        box of them. Raises SliceError for another form, an unknown generation, a shape of other dimensions than
        the generation's, one that whole hosts can't fill, and one larger than any slice.
        """
        text = name.strip().lower() if isinstance(name, str) and len(name) <= _MAX_NAME_CHARACTERS else ""
        if shape := _SHAPE.fullmatch(text):
            generation = _generation(shape["generation"], GENERATIONS, name)
            return cls.of(generation, tuple(map(int, shape["chips"].split("x"))))
        if accelerator := _ACCELERATOR_TYPE.fullmatch(text):
            generation = _generation(accelerator["generation"], {**GENERATIONS, **_BY_TYPE}, name)
            return cls.of(generation, _compact_box(generation, int(accelerator["count"]), name))
        raise SliceError(
            f"{_shorten(name)} names no TPU slice; say its generation and its chips, such as 'v4:2x2x4' or 'v5e:4x4', "
            "or an accelerator type such as 'v4-32'"
        )

    @classmethod
    def of(cls, generation: Generation, chips: tuple[int, ...]) -> Self:
        """A box of chips of a generation, z being 1 where the generation's network has two dimensions."""
        written = "x".join(map(str, chips))
        if len(chips) != generation.dimensions:
            raise SliceError(
                f"a {generation.name} slice has {generation.dimensions} dimensions; got {written}: say, for example, "
                f"'{generation.name}:{'x'.join(['2', '2', '1'][: generation.dimensions])}'"
            )
        if min(chips) < 1 or math.prod(chips) > generation.max_chips:
            raise SliceError(
                f"a {generation.name} slice of {written} has {math.prod(chips)} chips; it may have 1 to "
                f"{generation.max_chips}"
            )
        x, y, z = (*chips, 1)[:3]
        bounds = _host_bounds((x, y, z), generation.host_bounds)
        if bounds is None:
            whole = "x".join(map(str, generation.host_bounds[: generation.dimensions]))
            raise SliceError(
                f"hosts of {generation.name} drive {whole} chips each, which do not fill a slice of {written}; make "
                "its first two extents even"
            )
        return cls(generation, (x, y, z), bounds)

    @property
    def kind(self) -> str:
        """What JAX calls its devices."""
        return self.generation.kind

    @property
    def num_chips(self) -> int:
        """How many chips the slice has."""
        return math.prod(self.chips)

    @property
    def num_devices(self) -> int:
        """How many devices JAX shows on all hosts together."""
        return self.num_chips * self.generation.devices_per_chip

    @property
    def chips_per_host(self) -> int:
        """How many chips each host drives."""
        return math.prod(self.host_bounds)

    @property
    def num_hosts(self) -> int:
        """How many hosts drive the slice: each is a process of the gang."""
        return self.num_chips // self.chips_per_host

    @property
    def mesh_shape(self) -> tuple[int, int, int, int]:
        """(x, y, z, core) of the slice's topology."""
        return (*self.chips, self.generation.devices_per_chip)

    @property
    def wraps(self) -> tuple[bool, bool, bool]:
        """Along which of (x, y, z) the last chip is linked to the first."""
        return self.generation.wraps(self.chips)

    def links(self) -> list[tuple[tuple[int, int, int], tuple[int, int, int]]]:
        """Pairs of chips that are linked, each once: from every chip to the next along x, y and z."""
        found = []
        for chip in _box(self.chips):
            for axis, (size, wraps) in enumerate(zip(self.chips, self.wraps, strict=True)):
                if chip[axis] + 1 < size or (wraps and size > 1):
                    x, y, z = ((place + 1) % size if at == axis else place for at, place in enumerate(chip))
                    found.append((chip, (x, y, z)))
        return found

    def device_coordinates(self) -> list[list[tuple[int, int, int, int]]]:
        """[host][device] (x, y, z, core): hosts and the chips of each x fastest, then y, z; a chip's cores together."""
        bounds = self.host_bounds
        hosts = _box(tuple(size // step for size, step in zip(self.chips, bounds, strict=True)))
        return [
            [
                (x * bounds[0] + dx, y * bounds[1] + dy, z * bounds[2] + dz, core)
                for dx, dy, dz in _box(bounds)
                for core in range(self.generation.devices_per_chip)
            ]
            for x, y, z in hosts
        ]

    def host_of(self, chip: tuple[int, int, int]) -> int:
        """The number of the host that drives the chip at (x, y, z); SliceError outside of the slice."""
        if not all(0 <= place < size for place, size in zip(chip, self.chips, strict=True)):
            raise SliceError(f"there is no chip {chip} on {self}; its chips go up to {self._last_chip()}")
        x, y, z = (place // step for place, step in zip(chip, self.host_bounds, strict=True))
        columns, rows, _ = (size // step for size, step in zip(self.chips, self.host_bounds, strict=True))
        return x + columns * (y + rows * z)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.chips[: self.generation.dimensions]))
        return f"{self.generation.name}:{shape}"

    def _last_chip(self) -> tuple[int, int, int]:
        x, y, z = (size - 1 for size in self.chips)
        return x, y, z


def _host_bounds(chips: tuple[int, int, int], bounds: tuple[int, int, int]) -> tuple[int, int, int] | None:
    """What a host drives: the whole slice where that is less than a full host; None where full hosts don't fill it."""
    if all(size <= bound for size, bound in zip(chips, bounds, strict=True)):
        return chips
    fills = all(size % bound == 0 for size, bound in zip(chips, bounds, strict=True))
    return bounds if fills else None


def _compact_box(generation: Generation, count: int, name: str) -> tuple[int, ...]:
    """The extents, ascending, of the box of so many cores or chips that is nearest to a square or cube."""
    per_chip = generation.cores_per_chip
    chips, rest = divmod(count, per_chip)
    if rest or not 1 <= chips <= generation.max_chips:
        raise SliceError(
            f"{_shorten(name)}: {generation.name} slices have {per_chip} to {generation.max_chips * per_chip} cores, "
            f"{per_chip} on each chip"
        )
    if chips == 1:
        return (1,) * generation.dimensions
    boxes = [box for box in _boxes(chips, generation.dimensions) if _fits(generation, box)]
    if not boxes:
        raise SliceError(f"{_shorten(name)}: no box of whole {generation.name} hosts has {chips} chips")
    return min(boxes, key=lambda box: (max(box) - min(box), box))


def _boxes(chips: int, dimensions: int) -> list[tuple[int, ...]]:
    """Boxes of so many chips. Extents ascend, but a layer of 2 x 2 chips is written 2x2x1, as hosts lie."""
    divisors = [size for size in range(1, chips + 1) if chips % size == 0]
    if dimensions == 2:
        return [(size, chips // size) for size in divisors if size <= chips // size]
    triples = [(x, y, chips // (x * y)) for x in divisors for y in divisors if x <= y and chips % (x * y) == 0]
    return [(x, y, z) for x, y, z in triples if z >= y or z == 1]


def _fits(generation: Generation, box: tuple[int, ...]) -> bool:
    x, y, z = (*box, 1)[:3]
    return _host_bounds((x, y, z), generation.host_bounds) is not None


def _box(sizes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """All points of a box, x fastest, then y, then z."""
    x_size, y_size, z_size = sizes
    return [(x, y, z) for z, y, x in product(range(z_size), range(y_size), range(x_size))]


def _generation(written: str, known: dict[str, Generation], name: str) -> Generation:
    if written not in known:
        raise SliceError(f"{_shorten(name)}: there is no TPU {written!r}; known are {', '.join(GENERATIONS)}")
    return known[written]


def _shorten(name: object) -> str:
    text = repr(name)
    return text if len(text) <= _MAX_NAME_CHARACTERS else text[:_MAX_NAME_CHARACTERS] + "..."
