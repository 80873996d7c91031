"""``Dataset``: a thin layer over grain with the operations people know from tf.data, and a static element spec.

    dataset = Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(256)

A dataset is a source and a chain of operations; nothing is read before it is iterated. Elements are nests of numpy
arrays. Arrays are batched as whole slices, never row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import grain
import jax
import numpy as np

from drumline.distribute.errors import InvalidTypeError
from drumline.distribute.input import files, ops, sources
from drumline.distribute.input.autoshard import AutoShardPolicy
from drumline.distribute.input.ops import EmptyDatasetError
from drumline.distribute.input.spec import ArraySpec, static_rows


@dataclass(frozen=True, eq=False)
class Dataset:
    """Elements in order: a source, and what is done to them. Every method returns a new dataset."""

    source: sources.Source
    operations: tuple[ops.Op, ...] = ()
    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO

    @classmethod
    def range(cls, *args: int) -> Dataset:
        """The int64 scalars of ``range(*args)``."""
        return cls(sources.ArraySource(np.arange(*args, dtype=np.int64), "range"))

    @classmethod
    def from_tensor_slices(cls, arrays: Any) -> Dataset:
        """The rows of a nest of arrays; all have the same number of rows. A list is stacked into one array."""
        return cls(sources.array_source(arrays))

    @classmethod
    def from_generator(cls, batches: Any, element_spec: Any = None) -> Dataset:
        """The elements of any iterable, or of what the function ``batches`` returns on each start.

        ``element_spec``: nest of ArraySpec; by default taken from the first element, its leading dimension unknown.
        """
        return cls(sources.iterable_source(batches, element_spec))

    @classmethod
    def from_grain(cls, dataset: ops.Grain) -> Dataset:
        """The elements of a grain MapDataset or IterDataset."""
        if not isinstance(dataset, (grain.MapDataset, grain.IterDataset)):
            raise InvalidTypeError(f"{dataset!r:.80} is no grain MapDataset or IterDataset")
        return cls(sources.GrainSource(dataset))

    @classmethod
    def text_lines(cls, paths: files.Paths) -> Dataset:
        """The lines of text files, in order, as str."""
        return cls(files.text_lines(paths))

    @classmethod
    def tf_records(cls, paths: files.Paths) -> Dataset:
        """The records of TFRecord files, in order, as bytes. Checksums are not verified."""
        return cls(files.tf_records(paths))

    @classmethod
    def array_records(cls, paths: files.Paths) -> Dataset:
        """The records of ArrayRecord files, in order, as bytes."""
        return cls(files.array_records(paths))

    @classmethod
    def parquet_rows(cls, paths: files.Paths) -> Dataset:
        """The rows of Parquet files, in order, as dicts of scalars. ImportError without pyarrow."""
        return cls(files.parquet_rows(paths))

    def batch(self, rows: int, drop_remainder: bool = False) -> Dataset:
        """``rows`` consecutive elements as one; the last may hold fewer, or is dropped."""
        return self._then(ops.Batch(rows, drop_remainder))

    def padded_batch(self, rows: int, drop_remainder: bool = False) -> Dataset:
        """As :meth:`batch`, elements of different shape padded at the end with zeros."""
        return self._then(ops.Batch(rows, drop_remainder, padded=True))

    def map(self, fn: Callable[..., Any]) -> Dataset:
        """``fn`` of each element; an element that is a tuple is passed as separate arguments."""
        return self._then(ops.Map(fn))

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

    def at_iteration(self, iteration: int) -> Dataset:
        """The dataset as its ``iteration``-th pass has it: shuffled again. Iterating a Dataset itself is pass 0."""
        return replace(
            self,
            operations=tuple(
                operation.at_iteration(iteration) if isinstance(operation, ops.Shuffle) else operation
                for operation in self.operations
            ),
        )

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
        return self.source.knows_spec and not any(isinstance(op, ops.Map) for op in self.operations)

    @property
    def files(self) -> tuple[str, ...]:
        """The files it reads, in order."""
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

    def __iter__(self) -> Iterator[Any]:
        return iter(ops.in_order(self.to_grain()))

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
        dataset = self.source.open()
        for operation in self.operations[:length]:
            dataset = operation.apply(dataset)
        return dataset


def compute_batch_size(dataset: Dataset) -> int:
    """The global batch that the dataset's elements hold, -1 where it can't be inferred.

    It is looked for from the end of the pipeline backwards: batches tell it, ``map`` and foreign sources hide it,
    everything else lets it through. Where it is hidden, a leading dimension that is static and equal in all leaves
    tells.
    """
    walked = -1
    for operation in dataset.operations:
        walked = operation.batch_size(walked)
    if walked > 0:
        return walked
    try:
        rows = static_rows(dataset.element_spec)
    except EmptyDatasetError:
        return -1
    return -1 if rows is None else rows


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
