"""Turns a stream of elements into global steps on the host: which rows every replica gets. Nothing is placed here.

A reader is an iterator of steps that can save and restore its place between steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input.rows import join_rows, leading_rows
from drumline.distribute.input.splitting import cycle_sizes, even_sizes, fill_sizes

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CutBatch:
    """One global batch, nest of [global rows, ...], and the rows of each replica; replica 0 has the first rows.

    ``counted``: of a batch that may be padded, how many of each replica's rows, the first ones, are true.
    """

    batch: Any
    rows: tuple[int, ...]
    counted: tuple[int, ...] | None = None

    @property
    def is_padded(self) -> bool:
        """Whether some rows do not count."""
        return self.counted is not None and self.counted != self.rows


@dataclass(frozen=True, slots=True)
class Pieces:
    """One whole element per replica; they may differ in shape."""

    elements: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class OwnPieces:
    """Whole elements of this process's replicas; those of other processes have the same shapes.

    ``counted``: where they may be padded, how many rows of each replica, also of those of other processes, are true.
    """

    elements: tuple[Any, ...]
    counted: tuple[int, ...] | None = None


Step = CutBatch | Pieces | OwnPieces


class ElementIterator(Protocol):
    """Grain's iterator protocol."""

    def __next__(self) -> Any:
        """The next element."""

    def get_state(self) -> State:
        """Its place."""

    def set_state(self, state: State) -> None:
        """Goes back, or forth, to a saved place."""


class _Closing:
    """A reader that waits for nobody."""

    def close(self) -> None:
        """Nothing to end."""


class StepReader(Protocol):
    """Steps in order."""

    @property
    def dropped_rows(self) -> int:
        """Rows read and given to no replica so far."""

    def __next__(self) -> Step:
        """The next step."""

    def get_state(self) -> State:
        """Its place between two steps; JSON if the source's is."""

    def set_state(self, state: State) -> None:
        """Goes to a saved place."""

    def close(self) -> None:
        """Nobody waits for its next step any more. Called from another thread than the one that reads."""


class _WholeElements(_Closing):
    """Elements as they are. Of the one that a saved place lies within, the rows after that place make one, too."""

    def __init__(self, elements: ElementIterator) -> None:
        self._elements = elements
        self._rest: tuple[Any, State] | None = None

    def _next_element(self) -> Any:
        if self._rest is not None:
            (element, _), self._rest = self._rest, None
            return element
        return next(self._elements)

    def get_state(self) -> State:
        return {"elements": self._elements.get_state(), "offset": 0} if self._rest is None else self._rest[1]

    def set_state(self, state: State) -> None:
        (place,) = state["pipelines"] if "pipelines" in state else [state["elements"]]  # the first: of older versions
        self._elements.set_state(place)
        self._rest = None
        if offset := state.get("offset"):
            element = next(self._elements, None)
            if element is None or leading_rows(element) <= offset:
                raise InvalidValueError(
                    f"the saved place is {offset} rows into a batch that has "
                    f"{0 if element is None else leading_rows(element)}: restore it over the dataset that saved it"
                )
            self._rest = cut(element, offset, leading_rows(element)), {"elements": place, "offset": offset}


class EachElementReader(_WholeElements):
    """One replica takes every element as it is. Its place is that of the other readers of one dataset."""

    dropped_rows = 0

    def __next__(self) -> Step:
        return Pieces((self._next_element(),))


class EachBatchReader(_WholeElements):
    """Rule A: every element is one step. Elements without rows make no step."""

    def __init__(self, elements: ElementIterator, replicas: int) -> None:
        super().__init__(elements)
        self._replicas = replicas
        self.dropped_rows = 0

    def __next__(self) -> Step:
        while True:
            element = self._next_element()
            rows = leading_rows(element)
            if rows:
                return CutBatch(element, even_sizes(rows, self._replicas))


class RowStream:
    """The rows of all elements as one stream, taken in runs of any length. Its place may lie within an element."""

    def __init__(self, elements: ElementIterator) -> None:
        self._elements = elements
        self._open: Any = None
        self._rows = 0
        self._offset = 0
        self._before = elements.get_state()

    def take(self, wanted: int) -> tuple[Any, int]:
        """Up to ``wanted`` rows as one element, and how many they are; fewer only at the end, where it is None."""
        parts: list[Any] = []
        taken = 0
        if self._open is None:
            self._advance()  # so that a run of no rows has a shape
        while taken < wanted and self._advance():
            count = min(wanted - taken, self._rows - self._offset)
            parts.append(cut(self._open, self._offset, self._offset + count))
            self._offset += count
            taken += count
        if not parts and self._open is not None:
            return cut(self._open, 0, 0), 0
        return (join_rows(parts) if parts else None), taken

    def get_state(self) -> State:
        """Its place; before the open element when that has rows left."""
        if self._offset >= self._rows:
            return {"elements": self._elements.get_state(), "offset": 0}
        return {"elements": self._before, "offset": self._offset}

    def set_state(self, state: State) -> None:
        """Goes to a saved place."""
        self._elements.set_state(state["elements"])
        self._rows = self._offset = 0
        if state.get("offset"):
            self._advance()
            self._offset = state["offset"]

    def _advance(self) -> bool:
        """Opens elements until one has rows left; False at the end."""
        while self._offset >= self._rows:
            before = self._elements.get_state()
            element = next(self._elements, None)
            if element is None:
                return False
            self._before, self._open = before, element
            self._rows, self._offset = leading_rows(element), 0
        return True


class CycleReader(_Closing):
    """Rule B: a step is the next ``global_batch`` rows, whatever elements they lie in.

    ``pads``: the last step may leave replicas without rows; otherwise it is dropped then, and counted.
    """

    def __init__(self, elements: ElementIterator, global_batch: int, replicas: int, *, pads: bool) -> None:
        self._stream = RowStream(elements)
        self._sizes = cycle_sizes(global_batch, replicas)
        self._global_batch = global_batch
        self._pads = pads
        self.dropped_rows = 0

    def __next__(self) -> Step:
        batch, rows = self._stream.take(self._global_batch)
        filled = fill_sizes(self._sizes, rows)
        missing = any(size and not got for size, got in zip(self._sizes, filled, strict=True))
        if not rows or (missing and not self._pads):
            self.dropped_rows += rows
            raise StopIteration
        return CutBatch(batch, filled)

    def get_state(self) -> State:
        return self._stream.get_state()

    def set_state(self, state: State) -> None:
        self._stream.set_state(state)


class WholeElementReader(_Closing):
    """Every replica takes a whole element in turn; nothing is cut.

    ``pads()`` says whether replicas that find no element at the end get one without rows. Otherwise, and for elements
    that have no rows, an incomplete last step is dropped.
    """

    def __init__(self, pipelines: Sequence[ElementIterator], replicas: int, pads: Callable[[], bool]) -> None:
        self._pipelines = pipelines
        self._order = [pipelines[replica % len(pipelines)] for replica in range(replicas)]
        self._pads = pads
        self.dropped_rows = 0

    def take(self) -> list[Any]:
        """The next element of each replica; None for those that find none."""
        return [next(pipeline, None) for pipeline in self._order]

    def __next__(self) -> Step:
        elements = self.take()
        present = [element for element in elements if element is not None]
        if not present:
            raise StopIteration
        if len(present) < len(elements):
            scalars = any(np.ndim(leaf) == 0 for leaf in jax.tree.leaves(present))
            if scalars or not self._pads():
                self.dropped_rows += sum(1 if scalars else leading_rows(element) for element in present)
                raise StopIteration
            empty = cut(present[0], 0, 0)
            elements = [empty if element is None else element for element in elements]
        return Pieces(tuple(elements))

    def get_state(self) -> State:
        return {"pipelines": [pipeline.get_state() for pipeline in self._pipelines]}

    def set_state(self, state: State) -> None:
        for pipeline, place in zip(self._pipelines, state["pipelines"], strict=True):
            pipeline.set_state(place)


def cut(element: Any, start: int, stop: int) -> Any:
    """Rows ``start`` to ``stop`` of every leaf."""
    return jax.tree.map(lambda leaf: leaf[start:stop], element)
