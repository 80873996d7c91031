"""Datasets whose elements are divided over a strategy's replicas."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax

from drumline.distribute.base.runtime import is_abstract, x64_enabled
from drumline.distribute.contexts.context import in_replica_context, refuse_in_traced_function
from drumline.distribute.errors import InvalidTypeError, InvalidValueError, UnsupportedError
from drumline.distribute.input.context import InputContext
from drumline.distribute.input.dataset import Dataset, as_dataset
from drumline.distribute.input.division import DividedBatches, Division, Filled, WholeElements
from drumline.distribute.input.explain import InputExplanation
from drumline.distribute.input.options import InputOptions, InputReplicationMode, require_per_worker
from drumline.distribute.input.over_processes import DividedOverProcesses, Share, WholeOnShapes, WholeOverProcesses
from drumline.distribute.input.padding import without_remainder
from drumline.distribute.input.placing import InputTarget, Placer
from drumline.distribute.input.prefetch import Lookahead
from drumline.distribute.input.runs import HoldingReader, TakenSteps, take_steps
from drumline.distribute.input.steps import State

T = TypeVar("T")


class OutOfRangeError(LookupError):
    """``get_next`` was called after the last step."""


class Optional(Generic[T]):
    """A step that may not be there."""

    def __init__(self, value: T | None) -> None:
        self._value = value

    def has_value(self) -> bool:
        """Whether there was a step."""
        return self._value is not None

    def get_value(self) -> T:
        """The step; OutOfRangeError without one."""
        if self._value is None:
            raise OutOfRangeError("the distributed dataset has no further step; ask has_value() first")
        return self._value


class DistributedDataset:
    """Global steps of a dataset: nests of PerReplica (bare arrays with one replica). Each ``iter`` starts again."""

    def __init__(self, target: InputTarget, division: Division, options: InputOptions) -> None:
        self._target = target
        self._division = division
        self._options = options
        self._iterations = 0

    def __iter__(self) -> DistributedIterator:
        if in_replica_context():
            raise _inside_step("iter(distributed_dataset)")
        iteration, self._iterations = self._iterations, self._iterations + 1
        return DistributedIterator(self, self._division, self._target, self._options, iteration)

    def _continue_after(self, iteration: int) -> None:
        """The next `iter` is the one after `iteration`, as in the process that saved it."""
        self._iterations = max(self._iterations, iteration + 1)

    @property
    def element_spec(self) -> Any:
        """The nest of PerReplicaSpec of a step (bare specs with one replica)."""
        return self._division.element_spec()

    @property
    def cardinality(self) -> int:
        """The number of global steps as far as the source knows it; INFINITE (-1) or UNKNOWN (-2)."""
        return self._division.cardinality()

    def explain(self) -> InputExplanation:
        """Who reads what, which splitting rule is in force and why, what the last step looks like, what is dropped."""
        return self._division.explain()

    def reduce(self, initial_state: T, reduce_fn: Callable[[T, Any], T]) -> T:
        """Folds ``reduce_fn(state, step)`` over all steps."""
        state = initial_state
        for step in self:
            state = reduce_fn(state, step)
        return state

    def __getattr__(self, name: str) -> Any:
        if hasattr(Dataset, name):
            raise AttributeError(
                f"a distributed dataset has no {name!r}: transform the dataset first, then distribute it"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class DistributedIterator:
    """Steps in order. ``state()`` and ``restore`` save and continue it in the middle of an epoch."""

    _ahead: Lookahead[tuple[Any, State]]

    def __init__(
        self,
        dataset: DistributedDataset,
        division: Division,
        target: InputTarget,
        options: InputOptions,
        iteration: int,
    ) -> None:
        self._dataset = dataset
        self._report_wait = target.report_input_wait
        #: Do other processes take the same steps?
        self.is_over_processes = target.has_foreign_devices
        self._division = division
        self._place = Placer(target, to_device=options.places)
        # On shapes the reading thread would be outside of the program's trace.
        self._depth = 0 if is_abstract() else options.depth
        self._ready: deque[tuple[Any, State]] = deque()
        self._open(iteration)

    def __iter__(self) -> DistributedIterator:
        return self

    def __next__(self) -> Any:
        if in_replica_context():
            raise _inside_step("next(iterator)")
        refuse_in_traced_function("next(iterator)")
        self._report_wait(True)
        try:
            produced = self._ready.popleft() if self._ready else self._ahead.next()
        finally:
            self._report_wait(False)
        if produced is None:
            raise StopIteration
        step, self._state = produced
        return step

    def next_steps(self, most: int, room_for: Callable[[int], int]) -> TakenSteps | None:
        """Up to ``most`` steps of equal shapes as one nest on the devices; None at the end.

        ``room_for`` tells for how many steps to make room where so many were found.
        """
        self._report_wait(True)
        try:
            return self._next_steps(most, room_for)
        finally:
            self._report_wait(False)

    def _next_steps(self, most: int, room_for: Callable[[int], int]) -> TakenSteps | None:
        waiting, error = self._ahead.drain()
        self._ready.extend(waiting)
        if error is not None:
            self._reader.hold(error, self._reader.get_state())
        if self._ready:  # read ahead by the thread, which placed each
            step, self._state = self._ready.popleft()
            return TakenSteps(step, 1, is_one=True)
        taken = take_steps(self._reader, self._place, most, room_for)
        self._state = self._reader.get_state()
        return taken

    def get_next(self) -> Any:
        """The next step; OutOfRangeError (a LookupError) after the last."""
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError("the distributed dataset has no further step; call iter() to start again") from None

    def get_next_as_optional(self) -> Optional[Any]:
        """The next step, or an empty Optional after the last."""
        return Optional(next(self, None))

    @property
    def element_spec(self) -> Any:
        """As the dataset's."""
        return self._dataset.element_spec

    @property
    def dropped_rows(self) -> int:
        """Rows read so far that no replica gets, because the last step had none for some replica."""
        return self._reader.dropped_rows

    def state(self) -> State:
        """The place after the last step given out: restoring it gives the steps that were still to come."""
        return {"iteration": self._iteration, "place": self._state}

    def restore(self, state: State) -> None:
        """Continues at a place saved by ``state()`` of an iterator over the same dataset."""
        self._opened.close()
        self._ahead.discard()
        self._ready.clear()
        self._dataset._continue_after(state["iteration"])
        self._open(state["iteration"])
        self._reader.set_state(state["place"])
        self._state = state["place"]

    def _open(self, iteration: int) -> None:
        self._iteration = iteration
        self._opened = self._division.open(iteration)
        self._reader = HoldingReader(self._opened)
        self._state = self._reader.get_state()
        self._ahead = Lookahead(_producer(self._reader, self._place), self._depth)


def distribute_dataset(strategy: InputTarget, dataset: Any, options: InputOptions | None = None) -> DistributedDataset:
    """Divides each global batch of ``dataset`` over the replicas.

    ``dataset``: Dataset, grain dataset, iterable of batches, tf.data dataset, torch DataLoader (see ``as_dataset``).
    Raises AttributeError for one that is distributed already.
    """
    options = options or InputOptions()
    require_per_worker(options)
    if isinstance(dataset, DistributedDataset):
        raise AttributeError("this dataset is already distributed; distribute_dataset takes the dataset itself")
    source = as_dataset(dataset)
    if options.last_batch == "drop":
        source = without_remainder(source)
    fills: Filled = "all" if options.last_batch == "pad" else "none"
    is_one_program = len(strategy.processes) > 1 or (strategy.logical_axes and strategy.num_replicas_in_sync > 1)
    if is_one_program and options.last_batch == "auto" and options.fetch_to_device:
        fills = "uneven"  # of different rows each has a program of its own: in one process, with a device each
    if strategy.has_foreign_devices:
        return DistributedDataset(strategy, DividedOverProcesses(source, strategy, fills), options)
    replicas, pads = strategy.num_replicas_in_sync, strategy.pads_batches
    if fills == "uneven":  # of several devices each, or on shapes, where one process divides for all that a run has
        fills = "none" if DividedBatches(source, replicas, pads=False).is_always_even() else fills
        pads = fills != "none"
    return DistributedDataset(strategy, DividedBatches(source, replicas, pads=pads, fills=fills), options)


def distribute_datasets_from_function(
    strategy: InputTarget, dataset_fn: Callable[[InputContext], Any], options: InputOptions | None = None
) -> DistributedDataset:
    """Lets each replica take whole elements of what ``dataset_fn`` returns; nothing is divided.

    ``dataset_fn(InputContext)`` is called once in each process, and its replicas take turns; in PER_REPLICA mode once
    per replica.
    Raises AttributeError when it returns no dataset.
    """
    options = options or InputOptions()
    if options.last_batch in ("pad", "drop"):
        raise UnsupportedError(
            f"last_batch={options.last_batch!r} with distribute_datasets_from_function: its elements are the replicas' "
            "batches already, and are not changed; use drop_remainder=True when batching"
        )
    replicas = strategy.num_replicas_in_sync
    per_replica = options.replication_mode is InputReplicationMode.PER_REPLICA
    hosts = len(strategy.processes)
    pipelines = replicas if per_replica else hosts
    contexts = [InputContext(pipelines, pipeline, replicas) for pipeline in range(pipelines)]
    if strategy.has_foreign_devices:
        share = Share.of(strategy)
        contexts = share.contexts_of_replicas if per_replica else [share.context]
    elif hosts > 1:  # on shapes, where one process reads for all that a run would have
        sources = [_function_result(dataset_fn(context)) for context in contexts]
        return DistributedDataset(strategy, WholeOnShapes(sources, replicas, hosts), options)
    return whole_elements(strategy, [_function_result(dataset_fn(context)) for context in contexts], options)


def whole_elements(
    strategy: InputTarget, sources: list[Dataset], options: InputOptions, *, pads: bool = True, is_common: bool = False
) -> DistributedDataset:
    """Replicas take whole elements, in turn from one dataset or each from its own.

    ``pads``: whether replicas may run on no rows in the last step; otherwise such a step is dropped. ``is_common``: all
    processes have the same dataset, and their replicas take turns at it.
    """
    if strategy.has_foreign_devices:
        shared = WholeOverProcesses(sources, strategy, pads=pads, is_common=is_common)
        return DistributedDataset(strategy, shared, options)
    return DistributedDataset(strategy, WholeElements(sources, strategy.num_replicas_in_sync, pads=pads), options)


def _producer(reader: HoldingReader, place: Callable[[Any], Any]) -> Callable[[], tuple[Any, State] | None]:
    x64 = x64_enabled()  # of this thread; the reading thread would have the process's default

    def produce() -> tuple[Any, State] | None:
        step = next(reader, None)
        if step is None:
            return None
        with jax.enable_x64(x64):
            return place(step), reader.get_state()

    return produce


def _function_result(returned: Any) -> Dataset:
    if isinstance(returned, (list, tuple, dict, int, float, str)) or returned is None:
        raise AttributeError(f"the dataset function returned {returned!r:.60}, which is no dataset; return a Dataset")
    try:
        return as_dataset(returned)
    except InvalidTypeError as error:
        raise AttributeError(f"the dataset function must return a dataset: {error}") from None


def _inside_step(what: str) -> InvalidValueError:
    return InvalidValueError(f"{what} inside a step: take the batch outside and pass it to strategy.run in args")


__all__ = [
    "DistributedDataset",
    "DistributedIterator",
    "Optional",
    "OutOfRangeError",
    "distribute_dataset",
    "distribute_datasets_from_function",
    "whole_elements",
]
