"""Sources made of several datasets: side by side (``zip``) or one after the other (``concatenate``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import grain
import jax

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input import spec as specs
from drumline.distribute.input.ops import INFINITE, UNKNOWN, Grain, in_order
from drumline.distribute.input.rows import ArrayRows, RowOrder
from drumline.distribute.input.streams import Concatenated, State

_TEXT_KINDS = set("OSU")


class Part(Protocol):
    """What a joined source needs of a dataset."""

    @property
    def element_spec(self) -> Any:
        """The nest of specs of its elements."""

    @property
    def knows_spec(self) -> bool:
        """Whether that is known without reading."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files it can be divided by."""

    def of_files(self, positions: Sequence[int]) -> Self:
        """The same dataset reading just the files at these positions."""

    def cardinality(self) -> int:
        """Its number of elements, INFINITE or UNKNOWN."""

    def to_grain(self) -> Grain:
        """Its elements."""


@dataclass(frozen=True, eq=False)
class ZippedSource:
    """Element i of every part, in one structure; as many as the shortest part has.

    It names no files: workers that read different files of each part would pair other elements.
    """

    parts: tuple[Any, ...]
    tree: Any  # of jax, which names its type without saying what it has

    @property
    def files(self) -> tuple[str, ...]:
        return ()

    @property
    def knows_spec(self) -> bool:
        return all(part.knows_spec for part in self.parts)

    def with_parts(self, parts: tuple[Any, ...]) -> ZippedSource:
        return replace(self, parts=parts)

    def only(self, positions: Sequence[int]) -> ZippedSource:
        return self

    def open(self) -> Grain:
        opened = [part.to_grain() for part in self.parts]
        rows = _side_by_side(opened, self.tree)
        return _Zipped([in_order(dataset) for dataset in opened], self.tree) if rows is None else rows

    def spec(self) -> Any:
        return jax.tree.unflatten(self.tree, [part.element_spec for part in self.parts])

    def cardinality(self) -> int:
        counts = [part.cardinality() for part in self.parts]
        if UNKNOWN in counts:
            return UNKNOWN
        return min((count for count in counts if count != INFINITE), default=INFINITE)

    def __str__(self) -> str:
        return f"zip({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, eq=False)
class ConcatenatedSource:
    """The elements of one part after those of the other."""

    parts: tuple[Any, ...]

    def __post_init__(self) -> None:
        if all(part.knows_spec for part in self.parts):
            self.spec()  # parts that don't fit are refused here, before anything is read

    @property
    def files(self) -> tuple[str, ...]:
        """Those of all parts; none where a part reads none, and would be read whole by every worker."""
        files = [part.files for part in self.parts]
        return tuple(path for paths in files for path in paths) if all(files) else ()

    @property
    def knows_spec(self) -> bool:
        return all(part.knows_spec for part in self.parts)

    def with_parts(self, parts: tuple[Any, ...]) -> ConcatenatedSource:
        return replace(self, parts=parts)

    def only(self, positions: Sequence[int]) -> ConcatenatedSource:
        parts, first = [], 0
        for part in self.parts:
            own = [place - first for place in positions if first <= place < first + len(part.files)]
            first += len(part.files)
            if own:
                parts.append(part.of_files(own))
        return replace(self, parts=tuple(parts))

    def open(self) -> Grain:
        return Concatenated([in_order(part.to_grain()) for part in self.parts])

    def spec(self) -> Any:
        first, *others = [part.element_spec for part in self.parts]
        for other in others:
            if not _fit(first, other):
                raise InvalidValueError(
                    f"concatenate joins elements of one structure, dtype and rank, but {first} and {other} differ"
                )
            first = jax.tree.map(specs.merge_specs, first, other)
        return first

    def cardinality(self) -> int:
        counts = [part.cardinality() for part in self.parts]
        if INFINITE in counts:
            return INFINITE
        return UNKNOWN if UNKNOWN in counts else sum(counts)

    def __str__(self) -> str:
        first, *others = self.parts
        return f"{first}{''.join(f'.concatenate({other})' for other in others)}"


def _fit(one: Any, other: Any) -> bool:
    structures: list[Any] = [jax.tree.structure(one), jax.tree.structure(other)]
    if structures[0] != structures[1]:
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(
        (a.dtype == b.dtype or {a.dtype.kind, b.dtype.kind} <= _TEXT_KINDS) and len(a.shape) == len(b.shape)
        for a, b in pairs
    )


def _side_by_side(opened: list[Any], tree: Any) -> ArrayRows | None:
    """Arrays read in their own order as the rows of one nest, so that batches stay whole slices."""
    if not all(isinstance(d, ArrayRows) and d.order == RowOrder(d.order.rows) for d in opened):
        return None
    count = min(len(dataset) for dataset in opened)
    arrays = [jax.tree.map(lambda array: array[:count], dataset.arrays) for dataset in opened]
    return ArrayRows(jax.tree.unflatten(tree, arrays))


class _Zipped(grain.IterDataset[Any]):
    def __init__(self, parts: list[grain.IterDataset[Any]], tree: Any) -> None:
        super().__init__(tuple(parts))
        self._tree = tree

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _ZippedIterator([iter(parent) for parent in self.parents], self._tree)


class _ZippedIterator(grain.DatasetIterator[Any]):
    def __init__(self, parts: list[Any], tree: Any) -> None:
        super().__init__()
        self._parts = parts
        self._tree = tree

    def __next__(self) -> Any:
        elements = []
        for part in self._parts:  # no comprehension: in there, an end would be a RuntimeError
            elements.append(next(part))  # noqa: PERF401
        return jax.tree.unflatten(self._tree, elements)

    def get_state(self) -> State:
        return {"parts": [part.get_state() for part in self._parts]}

    def set_state(self, state: State) -> None:
        for part, place in zip(self._parts, state["parts"], strict=True):
            part.set_state(place)
