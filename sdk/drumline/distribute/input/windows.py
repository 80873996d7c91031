"""``window``: runs of elements as datasets of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grain
import jax

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input import spec as specs
from drumline.distribute.input.ops import Grain, Op, in_order
from drumline.distribute.input.streams import State

#: Makes the dataset of the elements of a window, whose spec is the second argument.
MakeDataset = Callable[[list[Any], Any], Any]


@dataclass(frozen=True)
class Window(Op):
    """``size`` elements, ``stride`` apart; the next window begins ``shift`` elements later."""

    size: int
    shift: int
    stride: int
    drop_remainder: bool
    make: MakeDataset

    def __post_init__(self) -> None:
        for name in ("size", "shift", "stride"):
            if getattr(self, name) < 1:
                raise InvalidValueError(f"{self}: {name} must be at least 1")

    def apply(self, dataset: Grain) -> Grain:
        return _Windowed(in_order(dataset), self)

    def spec(self, spec: Any, example: Callable[[], Any]) -> Any:
        return jax.tree.map(specs.DatasetSpec, spec)

    def cardinality(self, count: int) -> int:
        if count < 0:
            return count
        if not self.drop_remainder:
            return -(-count // self.shift)
        rest = count - ((self.size - 1) * self.stride + 1)
        return 0 if rest < 0 else rest // self.shift + 1

    def batch_size(self, before: int) -> int:
        return -1

    def datasets(self, elements: list[Any]) -> Any:
        """The window's elements: in the place of each leaf a dataset of its values."""
        leaves = [jax.tree.leaves(element) for element in elements]
        columns = [[values[leaf] for values in leaves] for leaf in range(len(leaves[0]))]
        return jax.tree.unflatten(
            jax.tree.structure(elements[0]), [self.make(column, _spec_of_all(column)) for column in columns]
        )

    def __str__(self) -> str:
        drops = ", drop_remainder=True" if self.drop_remainder else ""
        return f"window({self.size}, shift={self.shift}, stride={self.stride}{drops})"


def _spec_of_all(values: list[Any]) -> Any:
    return functools.reduce(specs.merge_specs, map(specs.leaf_spec, values))


class _Windowed(grain.IterDataset[Any]):
    def __init__(self, parent: grain.IterDataset[Any], window: Window) -> None:
        super().__init__(parent)
        self._window = window

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _WindowedIterator(iter(self._parent), self._window)


class _WindowedIterator(grain.DatasetIterator[Any]):
    """Saves the parent's place at the start of the next window, and how many elements lie before that start."""

    def __init__(self, parent: grain.DatasetIterator[Any], window: Window) -> None:
        super().__init__(parent)
        self._source = parent
        self._window = window
        self._held: list[tuple[State, Any]] = []
        self._to_skip = 0

    def __next__(self) -> Any:
        window = self._window
        self._hold((window.size - 1) * window.stride + 1)
        elements = [element for _, element in self._held[: (window.size - 1) * window.stride + 1 : window.stride]]
        if not elements or (window.drop_remainder and len(elements) < window.size):
            raise StopIteration
        self._to_skip = max(0, window.shift - len(self._held))
        self._held = self._held[window.shift :]
        return window.datasets(elements)

    def get_state(self) -> State:
        return {"start": self._held[0][0] if self._held else self._source.get_state(), "skip": self._to_skip}

    def set_state(self, state: State) -> None:
        self._source.set_state(state["start"])
        self._held, self._to_skip = [], state["skip"]

    def _hold(self, count: int) -> None:
        """Reads until ``count`` elements are held, or all there are."""
        while self._to_skip or len(self._held) < count:
            before = self._source.get_state()
            try:
                element = next(self._source)
            except StopIteration:
                return
            if self._to_skip:
                self._to_skip -= 1
            else:
                self._held.append((before, element))
