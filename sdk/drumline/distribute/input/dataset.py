"""``Dataset``: a thin layer over grain with the operations people know from tf.data, and a static element spec.

    dataset = Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(256)

A dataset is a source and a chain of operations; nothing is read before it is iterated. Elements are nests of numpy
arrays. Arrays are batched as whole slices, never row by row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import grain
import jax
import numpy as np

from drumline.distribute.errors import InvalidTypeError, InvalidValueError, UnsupportedError
from drumline.distribute.input import ops, sources
from drumline.distribute.input.autoshard import AutoShardPolicy
from drumline.distribute.input.caching import Cache
from drumline.distribute.input.from_files import FromFiles
from drumline.distribute.input.interleaving import DEFAULT_CYCLE_LENGTH, Interleave
from drumline.distribute.input.joined import ConcatenatedSource, ZippedSource
from drumline.distribute.input.ops import EmptyDatasetError
from drumline.distribute.input.options import Options
from drumline.distribute.input.parallel import AUTOTUNE, thread_count
from drumline.distribute.input.selecting import Enumerate, Filter
from drumline.distribute.input.signature import declared_signature, is_nest_of_specs
from drumline.distribute.input.spec import ArraySpec, static_rows
from drumline.distribute.input.windows import Window


@dataclass(frozen=True, eq=False)
class Dataset(FromFiles):
    """Elements in order: a source, and what is done to them. Every method returns a new dataset."""

    source: sources.Source
    operations: tuple[ops.Op, ...] = ()
    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO
    deterministic: bool | None = None

    @classmethod
    def range(cls, *args: int) -> Dataset:
        """The int64 scalars of ``range(*args)``."""
        return cls(sources.ArraySource(np.arange(*args, dtype=np.int64), "range"))

    @classmethod
    def from_tensor_slices(cls, arrays: Any) -> Dataset:
        """The rows of a nest of arrays; all have the same number of rows. A list is stacked into one array."""
        return cls(sources.array_source(arrays))

    @classmethod
    def from_tensors(cls, element: Any) -> Dataset:
        """One element: the nest of arrays. A list is made one array."""
        return cls(sources.element_source(element))

    @classmethod
    def from_generator(
        cls,
        batches: Any,
        element_spec: Any = None,
        *,
        output_signature: Any = None,
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] = (),
    ) -> Dataset:
        """The elements of any iterable, or of what the function ``batches(*args)`` returns on each start.

        ``output_signature``: nest of ArraySpec; or ``output_types``: nest of NumPy dtypes (``str`` for texts), and
        ``output_shapes`` in the same structure, where None is any size, or any shape. Each element is converted and
        checked against them: an InvalidTypeError (a TypeError) names the element and the type it should have.
        ``element_spec`` is a nest of ArraySpec that is not checked, or as ``output_types``. Where no shape is declared
        it is taken from the first element, its leading dimension unknown.
        """
        given = [declared for declared in (element_spec, output_signature, output_types) if declared is not None]
        if len(given) > 1:
            raise InvalidValueError("declare a generator's elements once: by output_signature or by output_types")
        if args:
            batches = functools.partial(batches, *(np.asarray(value) for value in args))
        if is_nest_of_specs(element_spec):
            return cls(sources.iterable_source(batches, element_spec))
        signature = declared_signature(given, output_shapes)
        return cls(sources.iterable_source(batches, signature=signature))

    @classmethod
    def zip(cls, *datasets: Any) -> Dataset:
        """Element i of every dataset, in the structure given (several arguments make a tuple); ends with the shortest.

        Workers divide the rows, never the files: other files of each dataset would pair other elements.
        """
        parts, tree = jax.tree.flatten(datasets[0] if len(datasets) == 1 else datasets)
        for part in parts:
            if not isinstance(part, Dataset):
                raise InvalidTypeError(f"zip takes datasets, not {part!r:.60}; use from_tensor_slices for arrays")
        if not parts:
            raise InvalidValueError("zip() needs at least one dataset")
        return cls(ZippedSource(tuple(parts), tree))._with_options_of(parts)

    @classmethod
    def from_grain(cls, dataset: ops.Grain) -> Dataset:
        """The elements of a grain MapDataset or IterDataset."""
        if not isinstance(dataset, (grain.MapDataset, grain.IterDataset)):
            raise InvalidTypeError(f"{dataset!r:.80} is no grain MapDataset or IterDataset")
        return cls(sources.GrainSource(dataset))

    def batch(self, rows: int, drop_remainder: bool = False) -> Dataset:
        """``rows`` consecutive elements as one; the last may hold fewer, or is dropped."""
        return self._then(ops.Batch(rows, drop_remainder))

    def padded_batch(self, rows: int, drop_remainder: bool = False) -> Dataset:
        """As :meth:`batch`, elements of different shape padded at the end with zeros."""
        return self._then(ops.Batch(rows, drop_remainder, padded=True))

    def map(
        self, fn: Callable[..., Any], num_parallel_calls: int | None = None, deterministic: bool | None = None
    ) -> Dataset:
        """``fn`` of each element; an element that is a tuple is passed as separate arguments.

        ``num_parallel_calls``: so many threads call it ahead, or as many as AUTOTUNE finds right; elements keep their
        order unless ``deterministic=False``.
        """
        return self._then(ops.Map(fn, thread_count(num_parallel_calls), deterministic))

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements for which ``predicate`` returns True; it returns one bool."""
        return self._then(Filter(predicate))

    def take_while(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements before the first for which ``predicate`` returns False."""
        return self._then(Filter(predicate, stops=True))

    def enumerate(self, start: int = 0) -> Dataset:
        """Pairs of a number, from ``start`` on, and the element."""
        return self._then(Enumerate(start))

    def flat_map(self, fn: Callable[..., Any]) -> Dataset:
        """The elements of the datasets ``fn(element)``, one dataset after the other."""
        return self._then(Interleave(fn, Dataset))

    def interleave(
        self,
        fn: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int = 1,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """The elements of ``cycle_length`` of the datasets ``fn(element)`` at a time, ``block_length`` of each in turn.

        ``num_parallel_calls``: so many threads read ahead; the order is the same unless ``deterministic=False``.
        """
        cycle = DEFAULT_CYCLE_LENGTH if cycle_length in (None, AUTOTUNE) else cycle_length
        assert cycle is not None
        return self._then(Interleave(fn, Dataset, cycle, block_length, thread_count(num_parallel_calls), deterministic))

    def window(self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False) -> Dataset:
        """Datasets of ``size`` elements, ``stride`` apart; each begins ``shift`` (by default ``size``) after the last.

        Leaves of an element become datasets of their own: ``flat_map(lambda w: w.batch(size))`` makes arrays of them.
        """
        return self._then(Window(size, size if shift is None else shift, stride, drop_remainder, _dataset_of_values))

    def cache(self, filename: str = "") -> Dataset:
        """The elements as the first whole pass gave them, kept in memory; what is before it is not read again.

        NotImplementedError for a ``filename``: nothing is kept in files.
        """
        if filename:
            raise UnsupportedError(f"cache({filename!r}): elements are kept in memory only; use cache()")
        return self._then(Cache())

    def concatenate(self, other: Dataset) -> Dataset:
        """The elements of this dataset, then those of ``other``; ValueError where their structure or dtypes differ."""
        if not isinstance(other, Dataset):
            raise InvalidTypeError(f"concatenate takes a dataset, not {other!r:.60}")
        return Dataset(ConcatenatedSource((self, other)))._with_options_of((self, other))

    def repeat(self, epochs: int | None = None) -> Dataset:
        """The dataset ``epochs`` times; None or -1 means endlessly."""
        return self._then(ops.Repeat(None if epochs == -1 else epochs))

    def shuffle(self, buffer_size: int, seed: int = 0, reshuffle_each_iteration: bool = True) -> Dataset:
        """Elements in a random order drawn from ``seed``; ``repeat`` after it draws a new one for every epoch.

        Arrays and other sources with random access are shuffled as a whole, whatever ``buffer_size`` is; others within
        windows of so many elements. Each pass over the distributed dataset has an order of its own, unless
        ``reshuffle_each_iteration`` is False.
        """
        return self._then(ops.Shuffle(buffer_size, seed, reshuffle_each_iteration))

    def take(self, count: int) -> Dataset:
        """The first ``count`` elements; -1 means all."""
        return self if count == -1 else self._then(ops.Take(count))

    def skip(self, count: int) -> Dataset:
        """All but the first ``count`` elements; -1 means none."""
        return self._then(ops.Take(0) if count == -1 else ops.Skip(count))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Every ``num_shards``-th element, beginning with ``index``."""
        return self._then(ops.Shard(num_shards, index))

    def unbatch(self) -> Dataset:
        """The rows of every element. ValueError where it is plain already that elements are scalars."""
        unbatched = self._then(ops.Unbatch())
        if self.knows_spec:
            _ = unbatched.element_spec
        return unbatched

    def prefetch(self, count: int) -> Dataset:
        """Keeps ``count`` elements ready by a background thread."""
        return self._then(ops.Prefetch(count))

    def with_auto_shard_policy(self, policy: AutoShardPolicy | str) -> Dataset:
        """How the dataset is divided between workers; also chooses the splitting rule (see ``explain``)."""
        return replace(self, auto_shard_policy=AutoShardPolicy.of(policy))

    def with_options(self, options: Options) -> Dataset:
        """The dataset under ``dist.Options``; what they leave open stays as it is."""
        if not isinstance(options, Options):
            raise InvalidTypeError(f"with_options takes dist.Options, not {options!r:.60}")
        policy, deterministic = options.auto_shard_policy, options.deterministic
        return replace(
            self,
            auto_shard_policy=self.auto_shard_policy if policy is None else policy,
            deterministic=self.deterministic if deterministic is None else deterministic,
        )

    def options(self) -> Options:
        """What ``with_options`` and ``with_auto_shard_policy`` chose."""
        return Options(self.auto_shard_policy, self.deterministic)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """The elements, scalars as NumPy scalars. TypeError for elements that are datasets themselves."""
        return (jax.tree.map(lambda leaf: np.asarray(leaf)[()], element) for element in self)

    def at_iteration(self, iteration: int) -> Dataset:
        """The dataset as its ``iteration``-th pass has it: shuffled again, but for what lies before a ``cache``.

        Iterating a Dataset itself is pass 0.
        """
        kept = max((place for place, op in enumerate(self.operations, 1) if isinstance(op, Cache)), default=0)
        changed = tuple(operation.at_iteration(iteration) for operation in self.operations[kept:])
        parts = self.source.parts if kept else tuple(part.at_iteration(iteration) for part in self.source.parts)
        return replace(self, source=self.source.with_parts(parts), operations=(*self.operations[:kept], *changed))

    def in_order(self) -> Dataset:
        """The dataset with its elements in one order whatever was asked for, also of its parts and those it opens."""
        source = self.source.with_parts(tuple(part.in_order() for part in self.source.parts))
        operations = tuple(operation.in_order() for operation in self.operations)
        return replace(self, source=source, operations=operations, deterministic=True)

    def of_files(self, positions: Sequence[int]) -> Dataset:
        """The same dataset reading just the files at these positions of ``files``."""
        chain = tuple(operation.for_other_input() for operation in self.operations)
        return replace(self, source=self.source.only(positions), operations=chain)

    def to_grain(self) -> ops.Grain:
        """The pipeline as a grain dataset."""
        return self._prefix(len(self.operations))

    @property
    def element_spec(self) -> Any:
        """The nest of ArraySpec of its elements. Functions given to ``map`` are run on the first element to find it."""
        return self._spec_before(len(self.operations))

    @property
    def knows_spec(self) -> bool:
        """Whether ``element_spec`` is known without reading and without running functions."""
        return self.source.knows_spec and not any(op.needs_example for op in self.operations)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that workers can divide among themselves, in order."""
        return self.source.files

    def cardinality(self) -> int:
        """The number of elements, or INFINITE (-1) or UNKNOWN (-2)."""
        count = self.source.cardinality()
        for position, operation in enumerate(self.operations):
            if isinstance(operation, ops.Unbatch):
                count = operation.rows(count, self._spec_before(position))
            else:
                count = operation.cardinality(count)
        return count

    def __len__(self) -> int:
        """The number of elements. TypeError where there is no end, or the source does not know it."""
        count = self.cardinality()
        if count < 0:
            raise TypeError("the dataset is infinite" if count == ops.INFINITE else "the dataset's length is unknown")
        return count

    def __bool__(self) -> bool:
        return True  # also without elements, as in TensorFlow

    def __iter__(self) -> Iterator[Any]:
        return iter(ops.in_order(self.to_grain()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise InvalidTypeError(
            f"{self!r:.80} is a dataset and no array; use flat_map(lambda window: window.batch(n)) to make arrays of it"
        )

    def __str__(self) -> str:
        return ".".join(map(str, (self.source, *self.operations)))

    def __repr__(self) -> str:
        return f"Dataset({self})"

    def _then(self, operation: ops.Op) -> Dataset:
        return replace(self, operations=(*self.operations, operation))

    def _spec_before(self, end: int) -> Any:
        """The specs of the elements that the ``end``-th operation gets."""
        spec = self.source.spec()
        for position, operation in enumerate(self.operations[:end]):
            spec = operation.spec(spec, lambda end=position: ops.first_element(self._prefix(end)))  # type: ignore[misc]
        return spec

    def _prefix(self, length: int) -> ops.Grain:
        ordered, operations = self.deterministic is not False, self.operations[:length]
        # A place in the first pass of a cache is a number of elements, and one in a window that is shuffled the place
        # before it, copied: what they read again always comes in the same order.
        kept = max((at for at, one in enumerate(operations) if isinstance(one, (Cache, ops.Shuffle))), default=0)
        dataset = (self.in_order() if kept else self).source.open()
        for at, operation in enumerate(operations):
            chosen = operation.in_order() if at < kept else operation.with_default_order(ordered)
            dataset = chosen.apply(dataset)
        return dataset

    def _with_options_of(self, parts: Sequence[Dataset]) -> Dataset:
        """The first choice that a part makes."""
        policies = (part.auto_shard_policy for part in parts if part.auto_shard_policy is not AutoShardPolicy.AUTO)
        orders = (part.deterministic for part in parts if part.deterministic is not None)
        return replace(self, auto_shard_policy=next(policies, AutoShardPolicy.AUTO), deterministic=next(orders, None))


def compute_batch_size(dataset: Dataset) -> int:
    """The global batch that the dataset's elements hold, -1 where it can't be inferred.

    It is looked for from the end of the pipeline backwards: batches tell it, ``map`` and foreign sources hide it,
    everything else lets it through. Where it is hidden, a leading dimension that is static and equal in all leaves
    tells. Datasets that were zipped or concatenated must agree.
    """
    walked = _walk_batch_size(dataset)
    if walked > 0:
        return walked
    try:
        rows = static_rows(dataset.element_spec)
    except EmptyDatasetError:
        return -1
    return -1 if rows is None else rows


def _walk_batch_size(dataset: Dataset) -> int:
    sizes = {_walk_batch_size(part) for part in dataset.source.parts}
    walked = sizes.pop() if len(sizes) == 1 else -1
    for operation in dataset.operations:
        walked = operation.batch_size(walked)
    return walked


def _dataset_of_values(values: list[Any], spec: Any) -> Dataset:
    """The dataset of a window."""
    return Dataset(sources.IterableSource(lambda: values, "window", spec, len(values)))


def as_dataset(source: Any) -> Dataset:
    """What ``distribute_dataset`` accepts, as a Dataset.

    A Dataset as it is; a grain dataset; a tf.data dataset or a torch DataLoader where those are in use; an array, tuple
    or dict of arrays as their rows; every other iterable, or function returning one, as batches.
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, (grain.MapDataset, grain.IterDataset)):
        return Dataset.from_grain(source)
    if hasattr(source, "as_numpy_iterator") and hasattr(source, "element_spec"):
        return _from_tf_data(source)
    if isinstance(source, (tuple, dict, np.ndarray, jax.Array)):
        return Dataset.from_tensor_slices(source)
    return Dataset.from_generator(source)


def _from_tf_data(source: Any) -> Dataset:
    spec = jax.tree.map(
        lambda leaf: ArraySpec(tuple(leaf.shape), np.dtype(leaf.dtype.as_numpy_dtype)),
        source.element_spec,
        is_leaf=lambda node: hasattr(node, "dtype"),
    )
    policy = source.options().experimental_distribute.auto_shard_policy
    reader = sources.IterableSource(
        source.as_numpy_iterator, "tf.data dataset", spec, int(source.cardinality()), shares_buffers=False
    )
    return Dataset(reader, (), AutoShardPolicy(int(policy)))
