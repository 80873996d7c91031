"""The state of several processes on disk: each writes a part of its own, and any number of processes reads them all.

```
<path>/process_<i>/tree.json     the shape of the state, its texts, and what of its arrays lies here
                   <n>_<k>.bin   the bytes of piece k of leaf n
```
An array over the devices of several processes is written once: each piece by the process that holds its first copy.
Everything else a process writes whole, and gets back what it wrote itself. orbax has no place for that: of values of
one process it writes those of the first.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.checkpoint.saved_tree import SavedTree, leaf_names
from drumline.distribute.errors import InvalidValueError, UnsupportedError

_TREE = "tree.json"
_Bounds = tuple[tuple[int, int], ...]
Array = np.ndarray[Any, np.dtype[Any]]


class _SavedArray(TypedDict):
    """``pieces``: per file the first and last index + 1 in each dimension. ``own``: no other process has any of it."""

    dtype: str
    shape: list[int]
    own: bool
    pieces: list[list[tuple[int, int]]]


class Pieces:
    """An array that lies on disk in pieces; what is read of it is what an index asks for."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], files: Sequence[tuple[_Bounds, Path]]) -> None:
        self.shape = shape
        self.dtype = dtype
        self._files = files

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """The values at ``index``, a slice without a step for each dimension. InvalidValueError if any is missing."""
        wanted = _bounds(index, self.shape)
        values = np.empty(_extent(wanted), self.dtype)
        found = 0
        for held, file in self._files:
            common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(wanted, held, strict=True)]
            if any(start >= stop for start, stop in common):
                continue
            values[_within(common, wanted)] = _load(file, self.dtype, held)[_within(common, held)]
            found += math.prod(_extent(common))
        if found != values.size:
            raise InvalidValueError(f"of an array of shape {self.shape} {values.size - found} values were not saved")
        return values

    def read(self) -> Array:
        """The whole array."""
        return self[tuple(slice(None) for _ in self.shape)]


class Part:
    """What one process wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path
        saved = json.loads((path / _TREE).read_text())
        self.tree: SavedTree = saved["tree"]
        self.arrays: dict[str, _SavedArray] = saved["arrays"]
        self.processes: int = saved["processes"]

    def text(self, name: str) -> str | None:
        """The leaf of that name, where it is a text."""
        return self.tree["texts"].get(name)

    def array(self, name: str) -> Array:
        """The leaf of that name, an array that this process had alone; from the disk as it is used."""
        ((bounds, file),) = self.files(name)
        return _load(file, jnp.dtype(self.arrays[name]["dtype"]), bounds)

    def files(self, name: str) -> Iterator[tuple[_Bounds, Path]]:
        """What lies here of an array: which indexes, and where."""
        for number, bounds in enumerate(self.arrays[name]["pieces"]):
            yield tuple((start, stop) for start, stop in bounds), self._path / f"{name}_{number}.bin"


def write_part(path: Path, tree: SavedTree, values: Mapping[str, Any]) -> None:
    """Writes this process's part of the state in ``path``; ``values`` are the leaves that are no texts.

    InvalidValueError for arrays of no numbers.
    """
    part = path / f"process_{jax.process_index()}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    arrays = {}
    for name, value in values.items():
        _require_numbers(leaf_names(tree)[int(name)], value.dtype)
        held: list[list[tuple[int, int]]] = []
        for bounds, piece in _pieces(value):
            piece.tofile(part / f"{name}_{len(held)}.bin")
            held.append(list(bounds))
        arrays[name] = _SavedArray(
            dtype=value.dtype.name,
            shape=list(value.shape),
            own=not is_over_processes(value),
            pieces=held,
        )
    saved = {"processes": jax.process_count(), "tree": tree, "arrays": arrays}
    (part / _TREE).write_text(json.dumps(saved))


def require_one_state(path: Path) -> None:
    """Raises InvalidValueError where the parts in ``path`` are not those of one state, naming the first difference."""
    first, *others = parts_of(path)
    names = leaf_names(first.tree)
    for rank, other in enumerate(others, start=1):
        if leaf_names(other.tree) != names:
            (name, *_) = sorted({*names} ^ {*leaf_names(other.tree)}) or ["the order of its leaves"]
            raise InvalidValueError(
                f"the states of processes 0 and {rank} differ in {name}; all processes save a state of one structure"
            )
        for number, name in enumerate(names):
            one, two = first.arrays.get(str(number)), other.arrays.get(str(number))
            if (one is None) != (two is None):
                raise InvalidValueError(f"{name} is a text in one of processes 0 and {rank}, an array in the other")
            if one and two and not (one["own"] and two["own"]) and _type(one) != _type(two):
                raise InvalidValueError(
                    f"{name} is one array over several processes, but {_type(one)} in process 0 and {_type(two)} in "
                    f"process {rank}"
                )


def parts_of(path: Path) -> list[Part]:
    """The parts of the state in ``path``, by process; empty where one process wrote it.

    InvalidValueError where one is missing.
    """
    found = len([directory for directory in path.glob("process_*") if directory.is_dir()])
    parts = [Part(directory) for number in range(found) if (directory := path / f"process_{number}").is_dir()]
    if parts and {part.processes for part in parts} != {len(parts)}:
        raise InvalidValueError(
            f"{path} has the parts of {len(parts)} processes, of {max(part.processes for part in parts)} that wrote it"
        )
    return parts


def read_leaves(path: Path, parts: Sequence[Part]) -> list[str | Array | Pieces]:
    """The leaves of the state in ``path``, as this process resumes with them.

    Raises InvalidValueError where other than as many processes wrote, and had a leaf of different values.
    """
    return [_leaf(path, parts, number, name) for number, name in enumerate(leaf_names(parts[0].tree))]


def is_over_processes(value: Any) -> bool:
    """Whether it is an array of which this process holds a part only, or nothing."""
    return isinstance(value, jax.Array) and not value.is_fully_addressable


def require_one_process(what: str) -> None:
    """Raises UnsupportedError in a program of several processes, who here do not know when all have written."""
    if jax.process_count() > 1:
        raise UnsupportedError(
            f"{what} of a program over {jax.process_count()} processes: none of them has the whole state; submit "
            "it as a run over several hosts, whose run.checkpoint writes a part for each"
        )


def _leaf(path: Path, parts: Sequence[Part], number: int, name: str) -> str | Array | Pieces:
    key = str(number)
    arrays = [part.arrays[key] for part in parts if key in part.arrays]
    if arrays and not all(array["own"] for array in arrays):
        files = [file for part in parts for file in part.files(key)]
        return Pieces(tuple(arrays[0]["shape"]), jnp.dtype(arrays[0]["dtype"]), files)
    if len(parts) == jax.process_count():
        parts = parts[jax.process_index() :]
    elif not all(_same(parts[0], part, key) for part in parts[1:]):
        raise InvalidValueError(
            f"{name} of the checkpoint {path} differs between the {len(parts)} processes that wrote it, so that "
            f"{jax.process_count()} can't resume from it; save what differs as one array over all of them"
        )
    text = parts[0].text(key)
    return np.array(parts[0].array(key)) if text is None else text


def _same(one: Part, other: Part, key: str) -> bool:
    """Whether both have the same text or bytes; one after the other is looked at, and none is kept."""
    if one.text(key) is not None:
        return one.text(key) == other.text(key)
    if _type(one.arrays[key]) != _type(other.arrays[key]):
        return False
    return np.array_equal(_bytes(one.array(key)), _bytes(other.array(key)))


def _type(array: _SavedArray) -> str:
    return f"{array['dtype']}{array['shape']}"


def _require_numbers(name: str, dtype: np.dtype[Any]) -> None:
    try:
        known = jnp.dtype(dtype.name) == dtype.newbyteorder("=") and not dtype.hasobject
    except TypeError:
        known = False
    if not known:
        raise InvalidValueError(f"{name} is an array of {dtype}, which can't be saved; save numbers, or texts as such")


def _pieces(value: Any) -> Iterator[tuple[_Bounds, Array]]:
    if not is_over_processes(value):
        yield _bounds(tuple(slice(None) for _ in value.shape), value.shape), _bytes(np.asarray(value))
        return
    for shard in value.addressable_shards:
        if shard.replica_id == 0:
            yield _bounds(shard.index, value.shape), _bytes(np.asarray(shard.data))


def _bytes(values: Array) -> Array:
    """In this machine's order, row by row."""
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return np.ascontiguousarray(native).reshape(-1).view(np.uint8)


def _load(file: Path, dtype: np.dtype[Any], bounds: _Bounds) -> Array:
    """The piece in that file, read as it is used; numpy's own format knows no types of others, such as float8."""
    extent = _extent(bounds)
    if not math.prod(extent):
        return np.empty(extent, dtype)
    return np.memmap(file, np.uint8, "r").view(dtype).reshape(extent)


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> _Bounds:
    return tuple(each.indices(size)[:2] for each, size in zip(index, shape, strict=True))


def _extent(bounds: Sequence[tuple[int, int]]) -> list[int]:
    return [stop - start for start, stop in bounds]


def _within(bounds: Sequence[tuple[int, int]], outer: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    return tuple(slice(start - low, stop - low) for (start, stop), (low, _) in zip(bounds, outer, strict=True))
