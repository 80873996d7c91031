"""Steps that all processes of a program take, or none: nobody waits for a process whose data have ended.

Each process tells the shapes that its replicas have: one tiny exchange a step, on the thread that reads ahead. There is
none where all know the number of steps and their shapes from the beginning.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from drumline.distribute.cluster.exchange import Exchange
from drumline.distribute.errors import DistributeWarning, UnsupportedError
from drumline.distribute.input.rows import leading_rows
from drumline.distribute.input.steps import (
    CutBatch,
    ElementIterator,
    OwnPieces,
    RowStream,
    State,
    StepReader,
    WholeElementReader,
    cut,
)


@dataclass(frozen=True, slots=True)
class Own:
    """What a process read for its replicas, one element each; None for those that found none."""

    elements: tuple[Any, ...]

    @property
    def kinds(self) -> list[str | None]:
        """The shape and types of each, for the other processes."""
        return [None if element is None else _kind(element) for element in self.elements]

    @property
    def rows(self) -> int:
        """All its rows; a scalar counts as one."""
        present = [element for element in self.elements if element is not None]
        return sum(leading_rows(one) if all(map(np.ndim, jax.tree.leaves(one))) else 1 for one in present)


class OwnReader(Protocol):
    """What one process reads, step by step."""

    def take(self) -> Own | None:
        """The next step of its replicas; None at the end."""

    @property
    def dropped_rows(self) -> int:
        """Rows read and given to no replica so far."""

    def get_state(self) -> State:
        """Its place between two steps."""

    def set_state(self, state: State) -> None:
        """Goes to a saved place."""


class AgreedSteps:
    """Steps of several processes. ``exchange``: None where all know the number of steps and their shapes.

    ``drops``: elements that do not make a whole step at the end are dropped; else UnsupportedError.
    """

    def __init__(self, reader: OwnReader, exchange: Exchange | None, *, drops: bool) -> None:
        self._reader = reader
        self._exchange = exchange
        self._drops = drops
        self._dropped_rows = 0

    @property
    def dropped_rows(self) -> int:
        """Rows read and given to no replica so far."""
        return self._dropped_rows + self._reader.dropped_rows

    @dropped_rows.setter
    def dropped_rows(self, rows: int) -> None:
        self._dropped_rows = rows - self._reader.dropped_rows

    def __next__(self) -> OwnPieces:
        if self._exchange is None:
            own = self._reader.take()
            told = [None if own is None else own.kinds]
        else:
            with self._exchange.telling_failure("the next batch"):
                own = self._reader.take()
            told = self._exchange.tell("the next batch", None if own is None else own.kinds)
        if own is None or not self._is_step(told):
            self._end(own, told)
            raise StopIteration
        return OwnPieces(own.elements)

    def get_state(self) -> State:
        """Its place between two steps."""
        return self._reader.get_state()

    def set_state(self, state: State) -> None:
        """Goes to a saved place."""
        self._reader.set_state(state)

    def close(self) -> None:
        """Tells the other processes, which wait for the next step here, that there is none."""
        if self._exchange is not None:
            self._exchange.close()

    def _is_step(self, told: list[list[str | None] | None]) -> bool:
        """Whether all replicas have an element, all of one shape; UnsupportedError where that loses rows."""
        kinds = [kind for process in told for kind in (process or [None])]
        if len(set(kinds)) == 1:
            return kinds[0] is not None
        if None in told or (None in kinds and self._drops):
            return False
        shown = ", ".join("none" if kind is None else kind for kind in dict.fromkeys(kinds))
        raise UnsupportedError(
            f"a step's replicas have batches of different shapes ({shown}), and over several processes all need one: "
            "use drop_remainder=True when batching"
        )

    def _end(self, own: Own | None, told: list[list[str | None] | None]) -> None:
        self._dropped_rows += 0 if own is None else own.rows
        processes = self._exchange.processes if self._exchange is not None else ()
        ended = [str(process) for process, kinds in zip(processes, told, strict=False) if kinds is None]
        if ended and len(ended) < len(told) and not self._drops:
            warnings.warn(
                f"the data of process {', '.join(ended)} ended before that of the others, and all end with it: "
                f"{0 if own is None else own.rows} rows of this process are given to no replica",
                DistributeWarning,
                stacklevel=2,
            )


class OwnRows:
    """Of each global batch, which all processes read, the rows of this process's replicas."""

    def __init__(self, reader: StepReader, own: Sequence[int]) -> None:
        self._reader = reader
        self._own = own

    @property
    def dropped_rows(self) -> int:
        return self._reader.dropped_rows

    def take(self) -> Own | None:
        step = next(self._reader, None)
        if step is None:
            return None
        assert isinstance(step, CutBatch)
        if len(set(step.rows)) > 1:  # known to all, as all read it
            raise UnsupportedError(
                f"a batch of {sum(step.rows)} rows gives the replicas {list(step.rows)} rows, and over several "
                "processes all need as many: use drop_remainder=True when batching, by a multiple of "
                f"{len(step.rows)}"
            )
        rows = step.rows[0]
        return Own(tuple(cut(step.batch, rows * replica, rows * (replica + 1)) for replica in self._own))

    def get_state(self) -> State:
        return self._reader.get_state()

    def set_state(self, state: State) -> None:
        self._reader.set_state(state)


class RowsOfOwnPart:
    """The part of a dataset that this process reads, ``rows`` of it for each of its replicas a step."""

    dropped_rows = 0

    def __init__(self, elements: ElementIterator, rows: int, replicas: int) -> None:
        self._stream = RowStream(elements)
        self._rows = rows
        self._replicas = replicas

    def take(self) -> Own | None:
        batch, found = self._stream.take(self._rows * self._replicas)
        if not found:
            return None
        starts = [self._rows * replica for replica in range(self._replicas)]
        ends = [min(start + self._rows, found) for start in starts]
        pieces = [cut(batch, *bounds) if bounds[0] < found else None for bounds in zip(starts, ends, strict=True)]
        return Own(tuple(pieces))

    def get_state(self) -> State:
        return self._stream.get_state()

    def set_state(self, state: State) -> None:
        self._stream.set_state(state)


class OwnElements:
    """Whole elements: of those that a step takes the ones at the positions ``own``."""

    def __init__(self, reader: WholeElementReader, own: Sequence[int]) -> None:
        self._reader = reader
        self._own = own

    @property
    def dropped_rows(self) -> int:
        return self._reader.dropped_rows

    def take(self) -> Own | None:
        elements = self._reader.take()
        return None if all(element is None for element in elements) else Own(tuple(elements[i] for i in self._own))

    def get_state(self) -> State:
        return self._reader.get_state()

    def set_state(self, state: State) -> None:
        self._reader.set_state(state)


def _kind(element: Any) -> str:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(element)]
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves)
