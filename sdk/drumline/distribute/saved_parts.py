"""The state of several processes on disk: each writes a part of its own, and any number of processes reads them all.

```
<path>/process_<i>/tree.json      the shape of the state, its texts, and what of its arrays lies here
                   <n>_<k>.npy    piece k of leaf n
```
An array over the devices of several processes is written once: each piece by the process that holds its first copy.
Everything else a process writes whole, and gets back what it wrote itself. orbax has no place for that: of values of
one process it writes those of the first.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.saved_tree import SavedTree, leaf_names

_TREE = "tree.json"
_Bounds = tuple[tuple[int, int], ...]


class _SavedArray(TypedDict):
    """``pieces``: per file the first and last index + 1 in each dimension. ``whole``: of this process alone."""

    dtype: str
    shape: list[int]
    whole: bool
    pieces: list[list[tuple[int, int]]]


class Pieces:
    """An array that lies on disk in pieces; what is read of it is what an index asks for."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], files: Sequence[tuple[_Bounds, Path]]) -> None:
        self.shape = shape
        self._dtype = dtype
        self._files = files

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray[Any, Any]:
        """The values at ``index``: a slice without a step for each dimension."""
        wanted = _bounds(index, self.shape)
        values = np.empty([stop - start for start, stop in wanted], self._dtype)
        for held, file in self._files:
            common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(wanted, held, strict=True)]
            if any(start >= stop for start, stop in common):
                continue
            piece = _load(file, self._dtype, lazily=True)
            values[_within(common, wanted)] = piece[_within(common, held)]
        return values

    def read(self) -> np.ndarray[Any, Any]:
        """The whole array."""
        return self[tuple(slice(None) for _ in self.shape)]


class Part:
    """What one process wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path
        saved = json.loads((path / _TREE).read_text())
        self.tree: SavedTree = saved["tree"]
        self.arrays: dict[str, _SavedArray] = saved["arrays"]

    def own(self, name: str) -> str | np.ndarray[Any, Any] | None:
        """The leaf of that name where the process had it alone: text or array; None for one over all processes."""
        if name in self.tree["texts"]:
            return self.tree["texts"][name]
        array = self.arrays[name]
        if not array["whole"]:
            return None
        return _load(self._file(name, 0), jnp.dtype(array["dtype"]))

    def files(self, name: str) -> Iterator[tuple[_Bounds, Path]]:
        """What lies here of an array over all processes: which indexes, and where."""
        for number, bounds in enumerate(self.arrays[name]["pieces"]):
            yield tuple((start, stop) for start, stop in bounds), self._file(name, number)

    def _file(self, name: str, number: int) -> Path:
        return self._path / f"{name}_{number}.npy"


def write_part(path: Path, tree: SavedTree, values: Mapping[str, Any]) -> None:
    """Writes this process's part of the state in ``path``; ``values`` are the leaves that are no texts."""
    part = path / f"process_{jax.process_index()}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    arrays = {}
    for name, value in values.items():
        pieces = _pieces(value)
        for number, (_, piece) in enumerate(pieces):
            np.save(part / f"{name}_{number}.npy", piece, allow_pickle=False)
        arrays[name] = _SavedArray(
            dtype=value.dtype.name,
            shape=list(value.shape),
            whole=not is_over_processes(value),
            pieces=[list(bounds) for bounds, _ in pieces],
        )
    (part / _TREE).write_text(json.dumps({"tree": tree, "arrays": arrays}))


def parts_of(path: Path) -> list[Part]:
    """The parts of the state in ``path``, by process; empty where one process wrote it."""
    found = [directory for directory in path.glob("process_*") if directory.is_dir()]
    return [Part(path / f"process_{number}") for number in range(len(found))]


def read_leaves(path: Path, parts: Sequence[Part]) -> list[str | np.ndarray[Any, Any] | Pieces]:
    """The leaves of the state in ``path``, as this process goes on with them.

    Raises InvalidValueError where other than as many processes wrote, and had a leaf of different values.
    """
    count = len(parts[0].tree["kinds"])
    return [_leaf(path, parts, str(number)) for number in range(count)]


def is_over_processes(value: Any) -> bool:
    """Whether it is an array of which this process holds a part only."""
    return isinstance(value, jax.Array) and not value.is_fully_addressable


def _leaf(path: Path, parts: Sequence[Part], name: str) -> str | np.ndarray[Any, Any] | Pieces:
    own = _own(path, parts, name)
    if own is not None:
        return own
    array = parts[0].arrays[name]
    files = [file for part in parts for file in part.files(name)]
    return Pieces(tuple(array["shape"]), jnp.dtype(array["dtype"]), files)


def _own(path: Path, parts: Sequence[Part], name: str) -> str | np.ndarray[Any, Any] | None:
    """What this process wrote; of another number of processes, what all of them did."""
    if len(parts) == jax.process_count():
        return parts[jax.process_index()].own(name)
    first, *others = [part.own(name) for part in parts]
    if any(not _same(first, other) for other in others):
        leaf = leaf_names(parts[0].tree)[int(name)]
        raise InvalidValueError(
            f"{leaf} of the checkpoint {path} differs between the {len(parts)} processes that wrote it, so that "
            f"{jax.process_count()} can't go on from it; save what differs as one array over all of them"
        )
    return first


def _load(file: Path, dtype: np.dtype[Any], *, lazily: bool = False) -> np.ndarray[Any, Any]:
    """The array in that file; numpy itself forgets the types that it knows from others, such as bfloat16."""
    values: np.ndarray[Any, Any] = np.load(file, mmap_mode="r" if lazily else None)
    return values.view(dtype)


def _same(one: str | np.ndarray[Any, Any] | None, other: str | np.ndarray[Any, Any] | None) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return type(one) is type(other) and one == other


def _pieces(value: Any) -> list[tuple[_Bounds, np.ndarray[Any, Any]]]:
    if not is_over_processes(value):
        return [(_bounds(tuple(slice(None) for _ in value.shape), value.shape), np.asarray(value))]
    return [
        (_bounds(shard.index, value.shape), np.asarray(shard.data))
        for shard in value.addressable_shards
        if shard.replica_id == 0
    ]


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> _Bounds:
    return tuple(each.indices(size)[:2] for each, size in zip(index, shape, strict=True))


def _within(bounds: Sequence[tuple[int, int]], outer: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    return tuple(slice(start - low, stop - low) for (start, stop), (low, _) in zip(bounds, outer, strict=True))
