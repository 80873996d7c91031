"""Reads the text of a compiled program: which of its instructions exchange what between which devices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from drumline.distribute.observe import CompiledCollective

_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|"
    r"collective-broadcast|ragged-all-to-all)(-start)?\("
)
_SHAPE = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
_LISTED = re.compile(r"replica_groups=(\{\{[\d,{} ]*\}\}|\{\})")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"replica_groups=mesh\[((?:'[^']*'=\d+,?)+)\] \{((?:'[^']*',?)+)\}")
"""As JAX 0.12 has it: the axes of a mesh of all devices in order, and those over which is exchanged."""
_PAIRS = re.compile(r"source_target_pairs=(\{\{[\d,{} ]*\}\})")
_NAME = re.compile(r'op_name="([^"]*)"')
_BITS = re.compile(r"\d+$")
_HALF_IS_INPUT = ("all-gather", "collective-permute")
"""Their asynchronous form gives its input, too."""


def find_collectives(text: str) -> Iterator[CompiledCollective]:
    """The collectives of a compiled program, in the order of its text."""
    for line in text.splitlines():
        found = _INSTRUCTION.match(line)
        if found is None:
            continue
        name, shapes, kind, started = found.groups()
        sizes = [_bytes(dtype, extents) for dtype, extents in _SHAPE.findall(shapes)]
        if started and kind in _HALF_IS_INPUT:
            sizes = sizes[1:2] if kind == "collective-permute" else sizes[len(sizes) // 2 :]
        told = _NAME.search(line)
        yield CompiledCollective(kind, sum(sizes), replica_groups(line), (told[1] if told else name)[:300])


def replica_groups(line: str) -> tuple[tuple[int, ...], ...]:
    """The groups that an instruction names: listed, as pairs of sender and receiver, by a formula or a mesh."""
    listed = _LISTED.search(line) or _PAIRS.search(line)
    if listed is not None:
        groups = re.findall(r"\{([\d, ]+)\}", listed[1])
        return tuple(tuple(int(number) for number in group.split(",")) for group in groups)
    mesh = _MESH.search(line)
    if mesh is not None:
        return _groups_of_mesh(*mesh.groups())
    formula = _IOTA.search(line)
    if formula is None:
        return ()
    shape, extents, order = ([int(n) for n in part.split(",")] if part else None for part in formula.groups())
    assert shape is not None
    assert extents is not None
    numbers = np.arange(math.prod(extents)).reshape(extents)
    rows = numbers.transpose(order).reshape(shape) if order else numbers.reshape(shape)
    return tuple(tuple(row) for row in rows.reshape(-1, shape[-1]).tolist())


def _groups_of_mesh(mesh: str, axes: str) -> tuple[tuple[int, ...], ...]:
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", mesh)}
    over = re.findall(r"'([^']*)'", axes)
    order = [*(name for name in sizes if name not in over), *over]
    numbers = np.arange(math.prod(sizes.values())).reshape([*sizes.values()])
    rows = numbers.transpose([[*sizes].index(name) for name in order])
    return tuple(tuple(row) for row in rows.reshape(-1, math.prod(sizes[name] for name in over)).tolist())


def _bytes(dtype: str, extents: str) -> int:
    bits = _BITS.search(dtype)
    width = 8 if dtype in ("pred", "token") or bits is None else int(bits[0])
    if dtype.startswith("f8"):
        width = 8
    return math.prod(int(extent) for extent in extents.split(",") if extent) * max(width // 8, 1)
