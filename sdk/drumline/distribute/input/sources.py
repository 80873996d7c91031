"""Where a dataset's elements come from: arrays, iterables, or somebody else's dataset."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol, Self

import grain
import jax
import numpy as np

from drumline.distribute.base.runtime import is_abstract
from drumline.distribute.errors import InvalidTypeError, InvalidValueError
from drumline.distribute.input import spec as specs
from drumline.distribute.input.ops import INFINITE, UNKNOWN, Grain, first_element
from drumline.distribute.input.rows import ArrayRows
from drumline.distribute.input.signature import Signature
from drumline.distribute.input.streams import ReplayedIterable


class Source(Protocol):
    """The beginning of a pipeline."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files it reads, in order; empty when it reads none."""

    @property
    def knows_spec(self) -> bool:
        """Whether ``spec`` is known without reading."""

    def open(self) -> Grain:
        """The elements, from the first one on."""

    def spec(self) -> Any:
        """The nest of specs of its elements."""

    def cardinality(self) -> int:
        """The number of elements, INFINITE or UNKNOWN."""

    def only(self, positions: Sequence[int]) -> Source:
        """The same source reading just the files at these positions."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """The datasets it is made of; empty for most."""

    def with_parts(self, parts: tuple[Any, ...]) -> Source:
        """The same source made of others."""


class _WithoutFiles:
    @property
    def files(self) -> tuple[str, ...]:
        return ()

    @property
    def parts(self) -> tuple[Any, ...]:
        return ()

    def only(self, positions: Sequence[int]) -> Self:
        return self

    def with_parts(self, parts: tuple[Any, ...]) -> Self:
        return self


@dataclass(frozen=True, eq=False)
class ArraySource(_WithoutFiles):
    """The rows of a nest of arrays of equal length."""

    arrays: Any
    name: str = "from_tensor_slices"

    @property
    def knows_spec(self) -> bool:
        return True

    def open(self) -> Grain:
        return ArrayRows(self.arrays)

    def spec(self) -> Any:
        return specs.unbatch_spec(specs.spec_of(self.arrays))

    def cardinality(self) -> int:
        return len(jax.tree.leaves(self.arrays)[0])

    def __str__(self) -> str:
        return f"{self.name} of {self.cardinality()} rows"


@dataclass(frozen=True, eq=False)
class IterableSource(_WithoutFiles):
    """Elements of anything that can be iterated; ``start`` begins a new iteration.

    ``shares_buffers``: its arrays may be changed after they were given out (by writing the next element into them, for
    instance), so each is copied.
    """

    start: Callable[[], Iterable[Any]]
    name: str
    declared_spec: Any = None
    length: int = UNKNOWN
    shares_buffers: bool = True
    signature: Signature | None = None

    @property
    def knows_spec(self) -> bool:
        return self.declared_spec is not None

    def open(self) -> Grain:
        return ReplayedIterable(lambda: self._convert(self.start()))

    def _convert(self, elements: Iterable[Any]) -> Iterator[Any]:
        if self.signature is not None:
            return itertools.starmap(self.signature.convert, enumerate(elements))
        return map(copy_element if self.shares_buffers else host_element, elements)

    def spec(self) -> Any:
        if self.declared_spec is not None:
            return self.declared_spec
        return _foreign_spec(self._peek() if isinstance(self.start, OnceOnly) else self.open())

    def _peek(self) -> Grain:
        assert isinstance(self.start, OnceOnly)
        first = self.start.first
        return ReplayedIterable(lambda: self._convert(first()))

    def cardinality(self) -> int:
        return self.length

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class GrainSource(_WithoutFiles):
    """A grain dataset as the user made it."""

    dataset: Grain

    @property
    def knows_spec(self) -> bool:
        return False

    def open(self) -> Grain:
        return self.dataset.map(host_element)

    def spec(self) -> Any:
        return _foreign_spec(self.open())

    def cardinality(self) -> int:
        if isinstance(self.dataset, grain.IterDataset):
            return UNKNOWN
        return INFINITE if len(self.dataset) >= sys.maxsize else len(self.dataset)

    def __str__(self) -> str:
        return f"grain {type(self.dataset).__name__}"


class OnceOnly:
    """A one-shot iterator that can be looked at before it is read, and says so when it is read a second time."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._peeked: list[Any] = []
        self._started = False

    def __call__(self) -> Iterator[Any]:
        return self._read()

    def first(self) -> list[Any]:
        """The first element, if there is one; it stays in line."""
        if not self._peeked:
            self._peeked.extend(itertools.islice(self._iterator, 1))
        return self._peeked

    def _read(self) -> Iterator[Any]:
        if self._started:
            raise InvalidValueError(
                "this iterator was already read; pass an iterable that can start again, or a function that returns one"
            )
        self._started = True
        yield from itertools.chain(self._peeked, self._iterator)


def array_source(nest: Any, name: str = "from_tensor_slices") -> ArraySource:
    """Rows of a nest; ValueError for scalars and for leaves of different length. A list is stacked into one array."""
    arrays = jax.tree.map(_array_of_rows, nest, is_leaf=lambda node: isinstance(node, list))
    leaves = jax.tree.leaves(arrays)
    shapes = ", ".join(str(leaf.shape) for leaf in leaves)
    if not leaves or any(leaf.ndim == 0 for leaf in leaves):
        raise InvalidValueError(f"arrays of shape {shapes or 'none'} have no rows; each needs at least one dimension")
    if len({len(leaf) for leaf in leaves}) > 1:
        raise InvalidValueError(f"arrays of shape {shapes} differ in their number of rows; give each as many rows")
    return ArraySource(arrays, name)


def element_source(nest: Any) -> ArraySource:
    """A single element."""
    arrays = jax.tree.map(
        lambda leaf: _array_of_rows([leaf] if isinstance(leaf, (str, bytes)) else _host_array(leaf)[None]),
        nest,
        is_leaf=lambda node: isinstance(node, list),
    )
    if not jax.tree.leaves(arrays):
        raise InvalidValueError(f"from_tensors({nest!r:.60}): an element needs at least one array")
    return ArraySource(arrays, "from_tensors")


def _array_of_rows(leaf: Any) -> np.ndarray[Any, Any]:
    try:
        array = _host_array(leaf)
    except ValueError:
        raise InvalidValueError(
            f"the rows {leaf!r:.80} differ in shape, so that they make no array; give each the same shape"
        ) from None
    if array.dtype == object and array.ndim and not all(isinstance(item, (str, bytes)) for item in array.flat):
        raise InvalidTypeError(f"the rows {leaf!r:.80} hold neither numbers nor texts; give arrays of these")
    return array


def _host_array(leaf: Any) -> np.ndarray[Any, Any]:
    """On shapes an array of JAX has no rows to read: one zero stands for all of them."""
    if is_abstract():
        leaf = jax.tree.map(
            lambda one: np.broadcast_to(np.zeros((), one.dtype), one.shape) if isinstance(one, jax.Array) else one, leaf
        )
    return np.asarray(leaf)


def iterable_source(batches: Any, element_spec: Any = None, signature: Signature | None = None) -> IterableSource:
    """A source over an iterable, a one-shot iterator, or a function returning either."""
    name = type(batches).__name__
    declared = element_spec if signature is None else signature.element_spec
    if callable(batches) and not isinstance(batches, Iterable):
        return IterableSource(batches, getattr(batches, "__name__", name), declared, signature=signature)
    if isinstance(batches, Iterator):
        return IterableSource(OnceOnly(batches), name, declared, signature=signature)
    if not isinstance(batches, Iterable):
        raise InvalidTypeError(f"{batches!r:.80} is no dataset: it can't be iterated")
    length = len(batches) if isinstance(batches, Sized) else UNKNOWN
    return IterableSource(lambda: batches, name, declared, length, signature=signature)


def host_element(element: Any) -> Any:
    """The element with numpy leaves. A list of arrays becomes a tuple of leaves, a list of numbers one array."""
    return jax.tree.map(_host_leaf, _with_tuples(element), is_leaf=lambda node: isinstance(node, list))


def copy_element(element: Any) -> Any:
    """As :func:`host_element`, with leaves nobody else can change (placing may alias host memory)."""
    return jax.tree.map(lambda leaf: np.array(leaf, copy=True), host_element(element))


def _with_tuples(element: Any) -> Any:
    if isinstance(element, list) and element and all(hasattr(item, "shape") for item in element):
        return tuple(element)
    return element


def _host_leaf(leaf: Any) -> np.ndarray[Any, Any]:
    if isinstance(leaf, bytes):
        return np.array(leaf, dtype=object)  # numpy's own byte strings lose trailing zeros
    return np.asarray(leaf)


def _foreign_spec(dataset: Grain) -> Any:
    """Specs seen on the first element; its number of rows is taken as not fixed."""
    spec = specs.spec_of(first_element(dataset))
    return jax.tree.map(lambda leaf: leaf.with_rows(None) if leaf.shape else leaf, spec)
