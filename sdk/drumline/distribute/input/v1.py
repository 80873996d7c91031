"""Iterators of the TF1-style strategies: explicit ``initialize`` and ``get_next``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from drumline.distribute.errors import InvalidTypeError, InvalidValueError
from drumline.distribute.input.autoshard import AutoShardPolicy
from drumline.distribute.input.context import InputContext
from drumline.distribute.input.dataset import Dataset, as_dataset
from drumline.distribute.input.distributed import DistributedDataset, distribute_dataset, whole_elements
from drumline.distribute.input.options import InputOptions, InputReplicationMode
from drumline.distribute.input.over_processes import Share
from drumline.distribute.input.placing import InputTarget
from drumline.distribute.input.workers import dataset_of_worker


class InputIterator:
    """Steps of a distributed dataset; ``initialize`` starts over."""

    def __init__(self, dataset: DistributedDataset) -> None:
        self._dataset = dataset
        self._iterator = iter(dataset)

    def initialize(self) -> None:
        """Starts at the first step again. A new iterator needs no call."""
        self._iterator = iter(self._dataset)

    @property
    def initializer(self) -> None:
        """As ``initialize()``: there is no session that would run an operation later."""
        self.initialize()

    def get_next(self) -> Any:
        """The next step; OutOfRangeError (a LookupError) after the last."""
        return self._iterator.get_next()


def make_dataset_iterator(
    strategy: InputTarget, dataset: Any, *, batch_is_per_replica: bool = False, shards_files: bool = False
) -> InputIterator:
    """An iterator over ``dataset``.

    Its batch is the global one and is divided, or, with ``batch_is_per_replica`` (the contrib strategies), every
    replica takes a whole element. Then, with ``shards_files``, each of several processes reads files of its own, and
    InvalidValueError says where the dataset reads none, or fewer than there are processes.
    """
    if not batch_is_per_replica:
        return InputIterator(distribute_dataset(strategy, dataset))
    if shards_files and strategy.has_foreign_devices:
        share = Share.of(strategy)
        by_file = as_dataset(dataset).with_auto_shard_policy(AutoShardPolicy.FILE)
        own = dataset_of_worker(by_file, len(share.processes), share.index)
        return InputIterator(whole_elements(strategy, [own], InputOptions()))
    return InputIterator(whole_elements(strategy, [as_dataset(dataset)], InputOptions(), is_common=True))


def make_input_fn_iterator(
    strategy: InputTarget,
    input_fn: Callable[[InputContext], Any],
    replication_mode: InputReplicationMode | str = InputReplicationMode.PER_WORKER,
) -> InputIterator:
    """An iterator over what ``input_fn(InputContext)`` returns.

    A dataset: every replica takes a whole element. A function: it is called once per replica and step, replica 0
    first, until it raises StopIteration. The steps end where a replica finds no element, as TensorFlow's do: elements
    left over are dropped. Raises ValueError for anything else, and in PER_REPLICA mode.
    """
    mode = InputOptions(replication_mode=replication_mode).replication_mode
    if mode is not InputReplicationMode.PER_WORKER:
        raise InvalidValueError(
            f"make_input_fn_iterator was given replication_mode {mode.name}; it knows PER_WORKER only. For an "
            "input per replica use distribute_datasets_from_function"
        )
    several = strategy.has_foreign_devices
    returned = input_fn(Share.of(strategy).context if several else InputContext(1, 0, strategy.num_replicas_in_sync))
    if callable(returned):
        calls = Dataset.from_generator(lambda: _call_repeatedly(returned))
        return InputIterator(whole_elements(strategy, [calls], InputOptions(per_replica_buffer_size=0), pads=False))
    try:
        return InputIterator(whole_elements(strategy, [as_dataset(returned)], InputOptions(), pads=False))
    except InvalidTypeError:
        raise InvalidValueError(
            f"input_fn returned {returned!r:.60}; return a dataset, or a function that makes one replica's batch"
        ) from None


def make_numpy_dataset(numpy_input: Any) -> Dataset:
    """A dataset of the rows of a nest of arrays, neither batched nor distributed.

    Tuples and dicts keep their structure, a list of arrays is stacked into one. Raises ValueError for scalars and for
    arrays of different length.
    """
    return Dataset.from_tensor_slices(numpy_input)


def _call_repeatedly(fn: Callable[[], Any]) -> Iterator[Any]:
    while True:
        try:
            yield fn()
        except StopIteration:
            return
