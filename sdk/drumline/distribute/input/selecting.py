"""Operations that keep or number elements one by one: ``filter``, ``take_while`` and ``enumerate``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grain
import numpy as np

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input import spec as specs
from drumline.distribute.input.ops import UNKNOWN, Grain, Op, call_with, in_order
from drumline.distribute.input.streams import Step


@dataclass(frozen=True)
class Filter(Op):
    """The elements for which ``predicate`` is True; ``stops``: none after the first for which it isn't."""

    predicate: Callable[..., Any]
    stops: bool = False

    def apply(self, dataset: Grain) -> Grain:
        return _Filtered(in_order(dataset), self._keeps, self.stops)

    def cardinality(self, count: int) -> int:
        return UNKNOWN

    def _keeps(self, element: Any) -> bool:
        answer = call_with(self.predicate, element)
        kept = np.asarray(answer)
        if kept.shape or kept.dtype != bool:
            raise InvalidValueError(
                f"the predicate of {self} returned {answer!r:.60} ({kept.dtype}{list(kept.shape)}); return one bool"
            )
        return bool(kept)

    def __str__(self) -> str:
        name = "take_while" if self.stops else "filter"
        return f"{name}({getattr(self.predicate, '__name__', self.predicate)})"


class _Filtered(grain.IterDataset[Any]):
    def __init__(self, parent: grain.IterDataset[Any], keeps: Callable[[Any], bool], stops: bool) -> None:
        super().__init__(parent)
        self._keeps = keeps
        self._stops = stops

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _FilteredIterator(iter(self._parent), self._keeps, self._stops)


class _FilteredIterator(Step):
    def __init__(self, parent: grain.DatasetIterator[Any], keeps: Callable[[Any], bool], stops: bool) -> None:
        super().__init__(parent, stopped=False)
        self._keeps = keeps
        self._stops = stops

    def __next__(self) -> Any:
        while not self.extra["stopped"]:
            element = next(self.parent)
            if self._keeps(element):
                return element
            self.extra["stopped"] = self._stops
        raise StopIteration


@dataclass(frozen=True)
class Enumerate(Op):
    """Pairs of an int64 number, from ``start`` on, and the element."""

    start: int = 0

    def apply(self, dataset: Grain) -> Grain:
        return _Enumerated(in_order(dataset), self.start)

    def spec(self, spec: Any, example: Callable[[], Any]) -> Any:
        return specs.ArraySpec((), np.dtype(np.int64)), spec

    def batch_size(self, before: int) -> int:
        return -1

    def __str__(self) -> str:
        return f"enumerate({self.start or ''})"


class _Enumerated(grain.IterDataset[Any]):
    def __init__(self, parent: grain.IterDataset[Any], start: int) -> None:
        super().__init__(parent)
        self._start = start

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _EnumeratedIterator(iter(self._parent), number=self._start)


class _EnumeratedIterator(Step):
    def __next__(self) -> Any:
        element = next(self.parent)
        number = np.int64(self.extra["number"])
        self.extra["number"] += 1
        return number, element
