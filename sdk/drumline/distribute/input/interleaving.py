"""``interleave`` and ``flat_map``: each element becomes a dataset, and several of those are read in turns.

The order is TensorFlow's: ``cycle_length`` slots are visited in a cycle, each gives ``block_length`` elements; a slot
whose dataset ended gets the next one when the cycle comes to it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import grain

from drumline.distribute.errors import InvalidTypeError, InvalidValueError
from drumline.distribute.input import spec as specs
from drumline.distribute.input.ops import UNKNOWN, Grain, Op, call_with, in_order
from drumline.distribute.input.parallel import ChoiceLog, start_pool, submit
from drumline.distribute.input.streams import State

#: TensorFlow takes the number of cores; the order of rows must not depend on the machine.
DEFAULT_CYCLE_LENGTH = 4

#: Datasets read in turns; each is open, with its files and buffers.
_MOST_SLOTS = 1024

_END = object()


@dataclass(frozen=True)
class Interleave(Op):
    """The elements of the datasets that ``fn`` makes of elements. With one slot it is ``flat_map``.

    ``dataset_type``: what ``fn`` must return. ``threads``: 0 reads in the caller's thread.
    """

    needs_example = True

    fn: Callable[..., Any]
    dataset_type: type[Any]
    cycle_length: int = 1
    block_length: int = 1
    threads: int = 0
    deterministic: bool | None = None
    opens_in_order: bool = False
    iteration: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.cycle_length <= _MOST_SLOTS:
            raise InvalidValueError(f"{self}: cycle_length must be 1 to {_MOST_SLOTS}")
        if self.block_length < 1:
            raise InvalidValueError(f"{self}: block_length must be at least 1")

    def apply(self, dataset: Grain) -> Grain:
        return _Interleaved(in_order(dataset), self)

    def spec(self, spec: Any, example: Callable[[], Any]) -> Any:
        return specs.spec_of_result(lambda element: self._dataset_of(element).element_spec, spec, example())

    def cardinality(self, count: int) -> int:
        return UNKNOWN

    def batch_size(self, before: int) -> int:
        return -1

    def at_iteration(self, iteration: int) -> Interleave:
        return replace(self, iteration=iteration)

    def in_order(self) -> Interleave:
        return replace(self, deterministic=True, opens_in_order=True)

    def with_default_order(self, deterministic: bool) -> Interleave:
        return replace(self, deterministic=deterministic) if self.deterministic is None else self

    def open(self, element: Any) -> grain.DatasetIterator[Any]:
        """The elements of the dataset of one element."""
        made = self._dataset_of(element).at_iteration(self.iteration)
        return iter(in_order((made.in_order() if self.opens_in_order else made).to_grain()))

    def _dataset_of(self, element: Any) -> Any:
        made = call_with(self.fn, element)
        if not isinstance(made, self.dataset_type):
            raise InvalidTypeError(f"the function of {self} returned {made!r:.60}, which is no Dataset; return one")
        return made

    def __str__(self) -> str:
        name = getattr(self.fn, "__name__", self.fn)
        if self.cycle_length == 1 and self.block_length == 1:
            return f"flat_map({name})"
        return f"interleave({name}, cycle_length={self.cycle_length}, block_length={self.block_length})"


class _Interleaved(grain.IterDataset[Any]):
    def __init__(self, parent: grain.IterDataset[Any], operation: Interleave) -> None:
        super().__init__(parent)
        self._operation = operation

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _InterleavedIterator(iter(self._parent), self._operation)


class _Opened:
    """The dataset of one element, read one element ahead where there is a pool.

    ``before``: the place before its element. ``place``: of its own iterator after what was given out; None before.
    """

    def __init__(self, before: State, element: Any, open_dataset: Callable[[Any], Any], place: State | None) -> None:
        self.before = before
        self.place = place
        self._element = element
        self._open = open_dataset
        self._iterator: Any = None
        self._ahead: Future[tuple[Any, State | None]] | None = None

    def read_ahead(self, pool: ThreadPoolExecutor | None) -> Future[tuple[Any, State | None]] | None:
        """The next element under way; None without a pool."""
        if pool is not None and self._ahead is None:
            self._ahead = submit(pool, self._read)
        return self._ahead

    def take(self) -> Any:
        """The next element, or the mark of the end."""
        element, place = self._read() if self._ahead is None else self._ahead.result()
        self._ahead = None
        self.place = place
        return element

    def _read(self) -> tuple[Any, State | None]:
        if self._iterator is None:
            self._iterator = self._open(self._element)
            if self.place is not None:
                self._iterator.set_state(self.place)
        element = next(self._iterator, _END)
        return element, None if element is _END else self._iterator.get_state()


class _InterleavedIterator(grain.DatasetIterator[Any]):
    """Saves where the cycle is, and of every slot the place before its element and the place within its dataset."""

    def __init__(self, parent: grain.DatasetIterator[Any], operation: Interleave) -> None:
        super().__init__(parent)
        self._source = parent
        self._operation = operation
        self._threads = min(operation.threads, operation.cycle_length)
        self._pool: ThreadPoolExecutor | None = None
        self._slots: list[_Opened | None] = [None] * operation.cycle_length
        self._upcoming: deque[_Opened] = deque()
        self._slot = 0
        self._in_block = 0
        self._choices = ChoiceLog()

    def __next__(self) -> Any:
        if self._threads > 1 and self._pool is None:
            self._pool = start_pool(self, self._threads)
        while self._fill_slot():
            if self._operation.deterministic is False:
                self._go_to_one_that_is_ready()
            opened = self._slots[self._slot]
            if opened is None:
                self._go_on()
                continue
            element = opened.take()
            if element is _END:
                self._slots[self._slot] = None
                self._go_on()
                continue
            opened.read_ahead(self._pool)
            self._in_block += 1
            if self._in_block == self._operation.block_length:
                self._go_on()
            return element
        raise StopIteration

    def get_state(self) -> State:
        place = {
            "parent": self._upcoming[0].before if self._upcoming else self._source.get_state(),
            "slots": [slot and {"before": slot.before, "place": slot.place} for slot in self._slots],
            "slot": self._slot,
            "in_block": self._in_block,
        }
        return {**place, "next": self._choices.place()} if self._operation.deterministic is False else place

    def set_state(self, state: State) -> None:
        self._slot, self._in_block = state["slot"], state["in_block"]
        self._choices.restore(state.get("next", ()))
        self._upcoming.clear()
        self._slots = [None if saved is None else self._reopen(**saved) for saved in state["slots"]]
        self._source.set_state(state["parent"])

    def _reopen(self, before: State, place: State | None) -> _Opened:
        self._source.set_state(before)
        return _Opened(before, next(self._source), self._operation.open, place)

    def _fill_slot(self) -> bool:
        """Gives the slot a dataset if it has none; False when no slot has one and none is left.

        Where the order may differ, every slot: the slot's own dataset may be one to wait for.
        """
        for slot in [self._slot] if self._operation.deterministic is not False else range(len(self._slots)):
            if self._slots[slot] is None:
                self._look_ahead()
                if self._upcoming:
                    self._slots[slot] = opened = self._upcoming.popleft()
                    # What its source gives from now on is nothing to a dataset that is open.
                    opened.before = deepcopy(opened.before)
        return any(self._slots)

    def _look_ahead(self) -> None:
        while len(self._upcoming) < max(1, self._threads):
            before = self._source.get_state()
            try:
                element = next(self._source)
            except StopIteration:
                return
            opened = _Opened(before, element, self._operation.open, None)
            opened.read_ahead(self._pool)
            self._upcoming.append(opened)

    def _go_on(self) -> None:
        self._slot = (self._slot + 1) % len(self._slots)
        self._in_block = 0

    def _go_to_one_that_is_ready(self) -> None:
        """Where the order may differ: the first slot, in the order of the cycle, that needs no waiting."""
        if self._pool is None:
            return
        ready = self._choices.take_due()
        if ready is None or self._slots[ready] is None:
            ready = self._first_ready(self._pool)
            self._choices.note(ready)
        if ready != self._slot:
            self._slot, self._in_block = ready, 0

    def _first_ready(self, pool: ThreadPoolExecutor) -> int:
        around = [(self._slot + step) % len(self._slots) for step in range(len(self._slots))]
        futures = {place: opened.read_ahead(pool) for place in around if (opened := self._slots[place])}
        done = wait([future for future in futures.values() if future], return_when=FIRST_COMPLETED).done
        return next(place for place, future in futures.items() if future in done)
