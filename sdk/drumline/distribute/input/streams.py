"""Grain datasets read in order only, for what grain itself lacks. Every iterator saves and restores its place."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import grain
import jax
import numpy as np

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input.rows import leading_rows

State = dict[str, Any]


class ReplayedIterable(grain.IterDataset[Any]):
    """Any re-iterable source of elements. Its place is the number of elements read: restoring reads them again."""

    def __init__(self, start: Callable[[], Iterable[Any]]) -> None:
        super().__init__()
        self._start = start

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _ReplayedIterator(self._start)


class _ReplayedIterator(grain.DatasetIterator[Any]):
    def __init__(self, start: Callable[[], Iterable[Any]]) -> None:
        super().__init__()
        self._start = start
        self._iterator: Iterator[Any] | None = None
        self._read = 0

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._start())
        element = next(self._iterator)
        self._read += 1
        return element

    def get_state(self) -> State:
        return {"read": self._read}

    def set_state(self, state: State) -> None:
        self._iterator, self._read = None, 0
        for expected in range(state["read"]):
            try:
                next(self)
            except StopIteration:
                raise InvalidValueError(
                    f"the saved place is element {state['read']}, but the iterable ends after {expected}; "
                    "restore needs the same source, and one that can be iterated again"
                ) from None


class Step(grain.DatasetIterator[Any]):
    """An iterator over one parent; ``extra`` holds what to save besides the parent's place."""

    def __init__(self, parent: grain.DatasetIterator[Any], **extra: Any) -> None:
        super().__init__(parent)
        self.parent = parent
        self.extra = extra

    def get_state(self) -> State:
        return {"parent": self.parent.get_state(), **self.extra}

    def set_state(self, state: State) -> None:
        self.parent.set_state(state["parent"])
        self.extra = {name: value for name, value in state.items() if name != "parent"}


class Limited(grain.IterDataset[Any]):
    """The first ``count`` elements."""

    def __init__(self, parent: grain.IterDataset[Any], count: int) -> None:
        super().__init__(parent)
        self._count = count

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _LimitedIterator(iter(self._parent), self._count)


class _LimitedIterator(Step):
    def __init__(self, parent: grain.DatasetIterator[Any], count: int) -> None:
        super().__init__(parent, left=count)

    def __next__(self) -> Any:
        if self.extra["left"] <= 0:
            raise StopIteration
        element = next(self.parent)
        self.extra["left"] -= 1
        return element


class Strided(grain.IterDataset[Any]):
    """Elements start, start + step, ... of the parent."""

    def __init__(self, parent: grain.IterDataset[Any], start: int, step: int) -> None:
        super().__init__(parent)
        self._start = start
        self._step = step

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _StridedIterator(iter(self._parent), self._start, self._step)


class _StridedIterator(Step):
    def __init__(self, parent: grain.DatasetIterator[Any], start: int, step: int) -> None:
        super().__init__(parent, passed=start)
        self._step = step

    def __next__(self) -> Any:
        while self.extra["passed"]:
            next(self.parent)
            self.extra["passed"] -= 1
        element = next(self.parent)
        self.extra["passed"] = self._step - 1
        return element


class Repeated(grain.IterDataset[Any]):
    """The parent ``epochs`` times, None meaning endlessly; an epoch without elements ends it."""

    def __init__(self, parent: grain.IterDataset[Any], epochs: int | None) -> None:
        super().__init__(parent)
        self._epochs = epochs

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _RepeatedIterator(iter(self._parent), self._epochs)


class _RepeatedIterator(Step):
    def __init__(self, parent: grain.DatasetIterator[Any], epochs: int | None) -> None:
        super().__init__(parent, epoch=0, began=False)
        self._epochs = epochs
        self._start = parent.get_state()

    def __next__(self) -> Any:
        while True:
            try:
                element = next(self.parent)
            except StopIteration:
                if not self.extra["began"] or self.extra["epoch"] + 1 == self._epochs:
                    raise
                self.extra = {"epoch": self.extra["epoch"] + 1, "began": False}
                self.parent.set_state(self._start)
            else:
                self.extra["began"] = True
                return element


class Unbatched(grain.IterDataset[Any]):
    """Every row of every element."""

    def __init__(self, parent: grain.IterDataset[Any]) -> None:
        super().__init__(parent)

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _UnbatchedIterator(iter(self._parent))


class _UnbatchedIterator(grain.DatasetIterator[Any]):
    """Saves the parent's place before the element it is in, and the rows of it already given out."""

    def __init__(self, parent: grain.DatasetIterator[Any]) -> None:
        super().__init__(parent)
        self._source = parent
        self._element: Any = None
        self._before = parent.get_state()
        self._row = 0
        self._rows = 0

    def __next__(self) -> Any:
        while self._row >= self._rows:
            self._open()
        row = self._row
        self._row += 1
        return jax.tree.map(lambda leaf: np.asarray(leaf[row]), self._element)

    def get_state(self) -> State:
        if self._row >= self._rows:
            return {"before": self._source.get_state(), "row": 0}
        return {"before": self._before, "row": self._row}

    def set_state(self, state: State) -> None:
        self._source.set_state(state["before"])
        self._row = self._rows = 0
        if state["row"]:
            self._open()
            self._row = state["row"]

    def _open(self) -> None:
        self._before = self._source.get_state()
        self._element = next(self._source)
        self._row, self._rows = 0, leading_rows(self._element)


class Concatenated(grain.IterDataset[Any]):
    """One dataset after the other, each opened when the one before it ends (files read in order)."""

    def __init__(self, parts: Sequence[grain.IterDataset[Any]]) -> None:
        super().__init__(tuple(parts))

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _ConcatenatedIterator(self.parents)


class _ConcatenatedIterator(grain.DatasetIterator[Any]):
    def __init__(self, parts: Sequence[Any]) -> None:
        super().__init__()
        self._parts = parts
        self._index = 0
        self._open: grain.DatasetIterator[Any] | None = None

    def __next__(self) -> Any:
        while self._index < len(self._parts):
            if self._open is None:
                self._open = iter(self._parts[self._index])
            try:
                return next(self._open)
            except StopIteration:
                self._index, self._open = self._index + 1, None
        raise StopIteration

    def get_state(self) -> State:
        return {"part": self._index, "place": None if self._open is None else self._open.get_state()}

    def set_state(self, state: State) -> None:
        self._index, self._open = state["part"], None
        if state["place"] is not None:
            self._open = iter(self._parts[self._index])
            self._open.set_state(state["place"])


class TextFile(grain.IterDataset[Any]):
    """The lines of one UTF-8 file, without line ends."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _TextFileIterator(self._path)


class _TextFileIterator(grain.DatasetIterator[Any]):
    """Its place is a byte offset."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._file = open(path, "rb")  # noqa: SIM115 - closed with the iterator
        weakref.finalize(self, self._file.close)

    def __next__(self) -> Any:
        line = self._file.readline()
        if not line:
            raise StopIteration
        return np.array(line.removesuffix(b"\n").removesuffix(b"\r").decode(), dtype=object)

    def get_state(self) -> State:
        return {"offset": self._file.tell()}

    def set_state(self, state: State) -> None:
        self._file.seek(state["offset"])

    def close(self) -> None:
        super().close()
        self._file.close()
