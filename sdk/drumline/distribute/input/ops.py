"""The transformations of a dataset: what each does to elements, their spec, their number and their batch size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import grain
import jax
import numpy as np

from drumline.distribute.errors import InvalidValueError
from drumline.distribute.input import spec as specs
from drumline.distribute.input.autoshard import SHARD_HINT
from drumline.distribute.input.parallel import AUTOTUNE, ParallelMapped
from drumline.distribute.input.rows import ArrayRows, pad_and_stack, stack_elements
from drumline.distribute.input.streams import Limited, Repeated, Strided, Unbatched

Grain: TypeAlias = "grain.MapDataset[Any] | grain.IterDataset[Any]"

#: Cardinalities that are no number of elements.
INFINITE = -1
UNKNOWN = -2

#: Elements that ``prefetch(AUTOTUNE)`` keeps ready: one in use, one coming.
_AUTOTUNED_BUFFER = 2


class EmptyDatasetError(InvalidValueError):
    """There is no element to look at."""


def in_order(dataset: Grain) -> grain.IterDataset[Any]:
    """The dataset read element after element in the caller's thread."""
    if isinstance(dataset, grain.MapDataset):
        return dataset.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    return dataset


def first_element(dataset: Grain) -> Any:
    """One element to look at; EmptyDatasetError when there is none."""
    if isinstance(dataset, grain.MapDataset):
        return dataset[0] if len(dataset) else _nothing()
    iterator = iter(dataset)
    try:
        return next(iterator)
    except StopIteration:
        return _nothing()
    finally:
        iterator.close()


def _nothing() -> Any:
    raise EmptyDatasetError("a dataset without elements shows no element_spec; declare one where it is made")


@dataclass(frozen=True)
class Op:
    """One transformation. By default elements keep their spec, their number and their batch size."""

    #: Whether ``spec`` runs the user's function on an element.
    needs_example: ClassVar[bool] = False

    def apply(self, dataset: Grain) -> Grain:
        """The transformed dataset."""
        raise NotImplementedError

    def spec(self, spec: Any, example: Callable[[], Any]) -> Any:
        """The specs afterwards; ``example()`` gives an element from before."""
        return spec

    def cardinality(self, count: int) -> int:
        """The number of elements afterwards, INFINITE or UNKNOWN."""
        return count

    def batch_size(self, before: int) -> int:
        """The batch size afterwards where shapes don't tell; -1 means it can't be inferred."""
        return before

    def at_iteration(self, iteration: int) -> Self:
        """The same, for another pass over the dataset."""
        return self

    def in_order(self) -> Self:
        """The operation with the order of its elements kept, whatever it was asked for."""
        return self

    def with_default_order(self, deterministic: bool) -> Self:
        """The same, where it doesn't say itself whether parallel results keep their order."""
        return self

    def for_other_input(self) -> Self:
        """The same, keeping nothing of the elements it has seen."""
        return self

    def __str__(self) -> str:
        raise NotImplementedError


def call_with(fn: Callable[..., Any], element: Any) -> Any:
    """``fn(element)``; elements that are plain tuples are passed as separate arguments."""
    return fn(*element) if type(element) is tuple else fn(element)


@dataclass(frozen=True)
class Batch(Op):
    """``rows`` consecutive elements stacked, or padded to a common shape and stacked."""

    rows: int
    drop_remainder: bool = False
    padded: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise InvalidValueError(f"batch({self.rows}): a batch needs at least 1 row")

    def apply(self, dataset: Grain) -> Grain:
        if isinstance(dataset, ArrayRows):
            return dataset.batches(self.rows, drop_remainder=self.drop_remainder)
        stack = pad_and_stack if self.padded else stack_elements
        return dataset.batch(self.rows, drop_remainder=self.drop_remainder, batch_fn=stack)

    def spec(self, spec: Any, example: Callable[[], Any]) -> Any:
        return specs.batch_spec(spec, self.rows if self.drop_remainder else None)

    def cardinality(self, count: int) -> int:
        if count < 0:
            return count
        return count // self.rows if self.drop_remainder else -(-count // self.rows)

    def batch_size(self, before: int) -> int:
        return self.rows

    def __str__(self) -> str:
        name = "padded_batch" if self.padded else "batch"
        return f"{name}({self.rows}{', drop_remainder=True' if self.drop_remainder else ''})"


@dataclass(frozen=True)
class Map(Op):
    """A function of each element, called ahead on ``threads`` threads (0: when asked, in the caller's)."""

    needs_example = True

    fn: Callable[..., Any]
    threads: int = 0
    deterministic: bool | None = None

    def apply(self, dataset: Grain) -> Grain:
        if self.threads < 2:
            return dataset.map(self._call)
        return ParallelMapped(in_order(dataset), self._call, self.threads, ordered=self.deterministic is not False)

    def in_order(self) -> Map:
        return replace(self, deterministic=True)

    def with_default_order(self, deterministic: bool) -> Map:
        return replace(self, deterministic=deterministic) if self.deterministic is None else self

    def spec(self, spec: Any, example: Callable[[], Any]) -> Any:
        try:
            element = example()
        except EmptyDatasetError:
            element = jax.tree.map(lambda leaf: np.zeros([size or 0 for size in leaf.shape], leaf.dtype), spec)
        return specs.map_spec(self._call, spec, element)

    def batch_size(self, before: int) -> int:
        return -1

    def _call(self, element: Any) -> Any:
        result = call_with(self.fn, element)
        return jax.tree.map(_result_leaf, result, is_leaf=lambda node: isinstance(node, list))

    def __str__(self) -> str:
        return f"map({getattr(self.fn, '__name__', self.fn)})"


def _result_leaf(leaf: Any) -> Any:
    return leaf if specs.is_dataset(leaf) else np.asarray(leaf)


@dataclass(frozen=True)
class Repeat(Op):
    """The whole dataset ``epochs`` times; None means endlessly."""

    epochs: int | None = None

    def apply(self, dataset: Grain) -> Grain:
        if self.epochs == 0:
            return Take(0).apply(dataset)
        if isinstance(dataset, grain.IterDataset):
            return Repeated(dataset, self.epochs)
        if len(dataset) >= sys.maxsize:
            return dataset
        if isinstance(dataset, ArrayRows) and dataset.order.epochs == 1:
            return ArrayRows(dataset.arrays, replace(dataset.order, epochs=self.epochs))
        return dataset.repeat(self.epochs)

    def cardinality(self, count: int) -> int:
        if self.epochs is not None:
            return count * self.epochs if count >= 0 else (count if self.epochs else 0)
        return INFINITE if count else 0

    def __str__(self) -> str:
        return f"repeat({'' if self.epochs is None else self.epochs})"


@dataclass(frozen=True)
class Shuffle(Op):
    """The elements in an order drawn from ``seed`` and the number of the ``iteration``.

    Sources with random access are shuffled as a whole, others within windows of ``window`` elements.
    """

    window: int
    seed: int
    each_iteration: bool = True
    iteration: int = 0

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InvalidValueError(f"shuffle({self.window}): the window needs at least 1 element")

    def apply(self, dataset: Grain) -> Grain:
        seed = int(np.random.SeedSequence([self.seed, self.iteration]).generate_state(1)[0])
        if isinstance(dataset, grain.IterDataset):
            return grain.experimental.WindowShuffleIterDataset(dataset, window_size=self.window, seed=seed)
        if isinstance(dataset, ArrayRows):
            return ArrayRows(dataset.arrays, replace(dataset.order, seed=seed))
        return dataset.shuffle(seed=seed)

    def at_iteration(self, iteration: int) -> Shuffle:
        return replace(self, iteration=iteration) if self.each_iteration else self

    def __str__(self) -> str:
        return f"shuffle({self.window}, seed={self.seed})"


@dataclass(frozen=True)
class Take(Op):
    """The first ``count`` elements."""

    count: int

    def apply(self, dataset: Grain) -> Grain:
        return dataset[: self.count] if isinstance(dataset, grain.MapDataset) else Limited(dataset, self.count)

    def cardinality(self, count: int) -> int:
        if count == UNKNOWN:
            return UNKNOWN if self.count else 0
        return self.count if count == INFINITE else min(count, self.count)

    def __str__(self) -> str:
        return f"take({self.count})"


@dataclass(frozen=True)
class Skip(Op):
    """All but the first ``count`` elements."""

    count: int

    def apply(self, dataset: Grain) -> Grain:
        return dataset[self.count :] if isinstance(dataset, grain.MapDataset) else Strided(dataset, self.count, 1)

    def cardinality(self, count: int) -> int:
        return count if count < 0 else max(0, count - self.count)

    def __str__(self) -> str:
        return f"skip({self.count})"


@dataclass(frozen=True)
class Shard(Op):
    """Elements ``index``, ``index + num_shards``, ...; SHARD_HINT stands for the worker's own shard."""

    num_shards: int
    index: int

    def __post_init__(self) -> None:
        if self.is_hint:
            return
        if self.num_shards < 1 or not 0 <= self.index < self.num_shards:
            raise InvalidValueError(
                f"shard({self.num_shards}, {self.index}): num_shards must be at least 1 and index in 0..num_shards-1"
            )

    @property
    def is_hint(self) -> bool:
        """Whether policy HINT is to put the worker's shard here."""
        return self.num_shards == self.index == SHARD_HINT

    def apply(self, dataset: Grain) -> Grain:
        if self.is_hint:
            raise InvalidValueError("shard(SHARD_HINT, SHARD_HINT) has a meaning only under auto-shard policy HINT")
        if isinstance(dataset, grain.MapDataset):
            return dataset[self.index :: self.num_shards]
        return Strided(dataset, self.index, self.num_shards)

    def cardinality(self, count: int) -> int:
        if count < 0 or self.is_hint:
            return count
        return max(0, -(-(count - self.index) // self.num_shards))

    def __str__(self) -> str:
        return "shard(SHARD_HINT, SHARD_HINT)" if self.is_hint else f"shard({self.num_shards}, {self.index})"


@dataclass(frozen=True)
class Unbatch(Op):
    """The rows of every element."""

    def apply(self, dataset: Grain) -> Grain:
        return Unbatched(in_order(dataset))

    def spec(self, spec: Any, example: Callable[[], Any]) -> Any:
        return specs.unbatch_spec(spec)

    def cardinality(self, count: int) -> int:
        return count if count in (0, INFINITE) else UNKNOWN

    def rows(self, count: int, spec: Any) -> int:
        """The number of rows of ``count`` elements of a spec; UNKNOWN unless the spec says how many each has."""
        each = specs.static_rows(spec)
        return count * each if count > 0 and each is not None and each >= 0 else self.cardinality(count)

    def batch_size(self, before: int) -> int:
        return -1

    def __str__(self) -> str:
        return "unbatch()"


@dataclass(frozen=True)
class Prefetch(Op):
    """``count`` elements kept ready by a background thread."""

    count: int

    def apply(self, dataset: Grain) -> Grain:
        if self.count == 0:
            return dataset
        size = _AUTOTUNED_BUFFER if self.count == AUTOTUNE else self.count
        return grain.experimental.ThreadPrefetchIterDataset(in_order(dataset), prefetch_buffer_size=size)

    def __str__(self) -> str:
        return f"prefetch({self.count})"
