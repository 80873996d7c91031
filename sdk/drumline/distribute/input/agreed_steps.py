"""Steps that all processes of a program take, or none: nobody waits for a process whose data have ended.

Each process tells the shapes that its replicas have: one tiny exchange a step, on the thread that reads ahead. There is
none where all know the number of steps and their shapes from the beginning.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from drumline.distribute.cluster.exchange import Exchange
from drumline.distribute.errors import DistributeWarning, UnsupportedError
from drumline.distribute.input.rows import join_rows, leading_rows
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
    """What a process read for its replicas, one element each; None for those that found none.

    ``counted``: where they may be padded, how many rows of replicas are true: of its own, or of all where it knows.
    """

    elements: tuple[Any, ...]
    counted: Mapping[int, int] | None = None

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

    def __next__(self) -> OwnPieces:
        own, told, counted = self._take()
        if own is None or not self._is_step(told):
            self._end(own, told)
            raise StopIteration
        if own.counted is None:
            return OwnPieces(own.elements)
        if not any(counted.values()):
            raise StopIteration
        return OwnPieces(own.elements, tuple(counted[replica] for replica in sorted(counted)))

    def _take(self) -> tuple[Own | None, list[list[str | None] | None], dict[int, int]]:
        """What was read here, the shapes that each process has, and the rows of the replicas that count."""
        if self._exchange is None:
            own = self._reader.take()
            return own, [None if own is None else own.kinds], dict(own.counted or {}) if own is not None else {}
        with self._exchange.telling_failure("the next batch"):
            own = self._reader.take()
        said = None if own is None else [own.kinds, [*(own.counted or {}).items()]]
        told = self._exchange.tell("the next batch", said)
        counted = {replica: rows for one in told if one is not None for replica, rows in one[1]}
        return own, [None if one is None else one[0] for one in told], counted

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
                "processes all need as many: use last_batch='pad', or drop_remainder=True when batching, by a multiple "
                f"of {len(step.rows)}"
            )
        rows = step.rows[0]
        counted = None if step.counted is None else dict(enumerate(step.counted))
        return Own(tuple(cut(step.batch, rows * replica, rows * (replica + 1)) for replica in self._own), counted)

    def get_state(self) -> State:
        return self._reader.get_state()

    def set_state(self, state: State) -> None:
        self._reader.set_state(state)


class RowsOfOwnPart:
    """The part of a dataset that this process reads, ``rows`` of it for each of its replicas ``own`` a step.

    ``fills``: replicas with fewer rows are filled up, with the first row that was read here: others may have more.
    """

    dropped_rows = 0

    def __init__(self, elements: ElementIterator, rows: int, own: Sequence[int], *, fills: bool) -> None:
        self._stream = RowStream(elements)
        self._rows = rows
        self._own = own
        self._fills = fills
        self._filler: Any = None

    def take(self) -> Own | None:
        batch, found = self._stream.take(self._rows * len(self._own))
        if self._fills:
            return self._fill(batch, found)
        if not found:
            return None
        return Own(tuple(cut(batch, *bounds) if bounds[0] < found else None for bounds in self._bounds(found)))

    def _bounds(self, found: int) -> list[tuple[int, int]]:
        starts = [min(self._rows * position, found) for position in range(len(self._own))]
        return [(start, min(start + self._rows, found)) for start in starts]

    def _fill(self, batch: Any, found: int) -> Own:
        if found and self._filler is None:
            self._filler = cut(batch, 0, 1)
        if self._filler is None:
            raise UnsupportedError(
                "this process has no row of its own, and nothing to fill its replicas up with: give each process a "
                "part that has rows, or use policy DATA"
            )
        bounds = self._bounds(found)
        missing = self._rows * len(self._own) - found
        filler = jax.tree.map(lambda leaf: np.repeat(leaf, missing, axis=0), self._filler)
        whole = join_rows([cut(batch, 0, found), filler]) if found else filler
        # The fewer rows are the last ones, so that what fills up stands behind each replica's true rows.
        pieces = [cut(whole, self._rows * i, self._rows * (i + 1)) for i in range(len(self._own))]
        counted = {replica: stop - start for replica, (start, stop) in zip(self._own, bounds, strict=True)}
        return Own(tuple(pieces), counted)

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
