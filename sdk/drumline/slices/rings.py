"""Orders that visit each chip of a mesh next to the one before it, so that neighbours in a reduction are neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

Chip = tuple[int, int, int]


def ring(x_size: int, y_size: int, z_size: int) -> list[Chip]:
    """All chips (x, y, z) of a box, in ring order from (0, 0, 0).

    A line is walked along. Two dimensions are walked as one closed path, three as such paths on every layer, joined in
    the corner. A box with an odd extent has no such ring: its chips come in plain order, x fastest.
    """
    sizes = (x_size, y_size, z_size)
    wide = [axis for axis, size in enumerate(sizes) if size > 1]
    if len(wide) > 1 and any(sizes[axis] % 2 for axis in wide):
        return [(x, y, z) for z, y, x in product(range(z_size), range(y_size), range(x_size))]
    if len(wide) < 2:
        return [_place({axis: step for axis in wide}) for step in range(max(sizes))]
    if len(wide) == 2:
        across, along = wide
        path = [(0, 0), *_open_path(sizes[across], sizes[along])]
        return [_place({across: column, along: row}) for column, row in path]
    return list(_stacked_layers(x_size, y_size, z_size))


def _stacked_layers(x_size: int, y_size: int, z_size: int) -> Iterator[Chip]:
    """The open path of each layer, every other one backwards, and back down the corner that they leave free."""
    path = list(_open_path(x_size, y_size))
    yield 0, 0, 0
    for z in range(z_size):
        yield from ((x, y, z) for x, y in (reversed(path) if z % 2 else path))
    yield from ((0, 0, z) for z in range(z_size - 1, 0, -1))


def _open_path(columns: int, rows: int) -> Iterator[tuple[int, int]]:
    """(column, row) of all but (0, 0), which the path begins and ends beside.

    Right through even rows and left through odd ones, column 0 left out; then back along column 0 from the last row.
    """
    for row in range(rows):
        across = range(1, columns)
        yield from ((column, row) for column in (reversed(across) if row % 2 else across))
    yield from ((0, row) for row in range(rows - 1, 0, -1))


def _place(coordinates: dict[int, int]) -> Chip:
    return coordinates.get(0, 0), coordinates.get(1, 0), coordinates.get(2, 0)
