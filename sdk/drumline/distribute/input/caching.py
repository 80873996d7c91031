"""``cache``: elements are read once and kept in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import grain
import jax
import numpy as np

from drumline.distribute.input import spec as specs
from drumline.distribute.input.ops import Grain, Op, in_order
from drumline.distribute.input.rows import ArrayRows
from drumline.distribute.input.streams import State


class _Store:
    """The elements of a whole pass; None until one has ended."""

    def __init__(self) -> None:
        self.elements: list[Any] | None = None


@dataclass(frozen=True)
class Cache(Op):
    """Elements as the first whole pass gave them, in that order. Passes that end early keep nothing."""

    store: _Store = field(default_factory=_Store, compare=False)

    def apply(self, dataset: Grain) -> Grain:
        if isinstance(dataset, ArrayRows) and dataset.order.seed is None and dataset.order.epochs == 1:
            return dataset  # its arrays lie in memory already, and stay open to random access
        return _Cached(in_order(dataset), self.store)

    def for_other_input(self) -> Cache:
        return Cache()

    def __str__(self) -> str:
        return "cache()"


class _Cached(grain.IterDataset[Any]):
    def __init__(self, parent: grain.IterDataset[Any], store: _Store) -> None:
        super().__init__(parent)
        self._store = store

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _CachedIterator(self._parent, self._store)


class _CachedIterator(grain.DatasetIterator[Any]):
    """Its place is the number of elements given; without a full store, restoring reads them again, to keep them."""

    def __init__(self, dataset: grain.IterDataset[Any], store: _Store) -> None:
        super().__init__()
        self._dataset = dataset
        self._store = store
        self._source: grain.DatasetIterator[Any] | None = None
        self._read: list[Any] = []
        self._given = 0

    def __next__(self) -> Any:
        elements = self._store.elements
        if elements is None:
            elements = self._read_next()
        if self._given >= len(elements):
            raise StopIteration
        element = elements[self._given]
        self._given += 1
        return jax.tree.map(_copy, element)

    def get_state(self) -> State:
        return {"given": self._given}

    def set_state(self, state: State) -> None:
        self._given = state["given"]

    def _read_next(self) -> list[Any]:
        """What was read, up to the next element; at the end it is everybody's."""
        if self._source is None:
            self._source = iter(self._dataset)
        while len(self._read) <= self._given:
            try:
                self._read.append(next(self._source))
            except StopIteration:
                self._store.elements = self._read
                break
        return self._read


def _copy(leaf: Any) -> Any:
    """A leaf that its receiver may change, or place on a device that aliases it."""
    return leaf if specs.is_dataset(leaf) else np.array(leaf, copy=True)
