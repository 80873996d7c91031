"""Batches filled up to the usual shape, so that a ragged end is no other program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from drumline.distribute.errors import InvalidValueError, UnsupportedError
from drumline.distribute.input import ops
from drumline.distribute.input.dataset import Dataset
from drumline.distribute.input.rows import leading_rows
from drumline.distribute.input.steps import CutBatch, OwnPieces, Pieces, State, Step, StepReader

#: Beside the reader's own names in a saved place.
_FILLED_TO = "filled_to_rows"


class PaddingReader:
    """Steps in which each replica has as many rows. ``rows``: how many, None for as many as the first step has.

    ``only_uneven``: a step that gives each replica as many rows stays as it is, whatever the other steps have.
    Filled up is with the batch's first row, not with zeros: what a step computes of it stays finite.
    """

    def __init__(self, reader: StepReader, rows: int | None, replicas: int, *, only_uneven: bool = False) -> None:
        self._reader = reader
        self._rows = rows
        # A place of uneven ones is that of one process, which fills up nothing; what follows it tells the rows again.
        self._saves_rows = rows is None and not only_uneven
        self._replicas = replicas
        self._only_uneven = only_uneven

    def __next__(self) -> Step:
        step = _as_cut(next(self._reader))
        if self._rows is None or (self._only_uneven and max(step.rows) > self._rows):
            self._rows = max(step.rows)
        if self._only_uneven and len(set(step.rows)) == 1:
            return replace(step, counted=step.rows)
        if max(step.rows) > self._rows:
            raise InvalidValueError(
                f"a batch of {sum(step.rows)} rows needs {max(step.rows)} rows on a replica, and the batches before "
                f"had {self._rows}: last_batch='pad' fills up, it does not cut; use last_batch='exact'"
            )
        full = (self._rows,) * self._replicas
        if step.rows == full:
            return replace(step, counted=full)
        return CutBatch(jax.tree.map(lambda leaf: self._fill(leaf, step.rows), step.batch), full, step.rows)

    @property
    def dropped_rows(self) -> int:
        """As the reader's."""
        return self._reader.dropped_rows

    def _fill(self, leaf: Any, rows: tuple[int, ...]) -> Any:
        assert self._rows is not None
        filled = np.empty((self._replicas, self._rows, *leaf.shape[1:]), leaf.dtype)
        filled[:] = leaf[0]
        start = 0
        for replica, count in enumerate(rows):
            filled[replica, :count] = leaf[start : start + count]
            start += count
        return filled.reshape(-1, *leaf.shape[1:])

    def get_state(self) -> State:
        """The reader's place, which one that fills up nothing takes too; and the rows, where the steps told them."""
        place = self._reader.get_state()
        return {**place, _FILLED_TO: self._rows} if self._saves_rows else place

    def set_state(self, state: State) -> None:
        """Goes to a saved place."""
        if "reader" in state:  # of older versions
            state = {**state["reader"], _FILLED_TO: state["rows"]}
        self._reader.set_state(state)
        if self._saves_rows:
            self._rows = state.get(_FILLED_TO)

    def close(self) -> None:
        """As the reader's."""
        self._reader.close()


def without_remainder(source: Dataset) -> Dataset:
    """The dataset without its last batch where that has fewer rows; UnsupportedError where it was not batched here."""
    last = max((i for i, each in enumerate(source.operations) if isinstance(each, ops.Batch)), default=None)
    if last is None:
        raise UnsupportedError(
            "last_batch='drop' of a dataset that is not batched by Dataset.batch: leave its last batch out where the "
            "batches are made"
        )
    batch = source.operations[last]
    assert isinstance(batch, ops.Batch)
    chain = (*source.operations[:last], replace(batch, drop_remainder=True), *source.operations[last + 1 :])
    return replace(source, operations=chain)


def _as_cut(step: Step) -> CutBatch:
    assert not isinstance(step, OwnPieces)
    if isinstance(step, Pieces):  # one replica's element, uncut
        (element,) = step.elements
        return CutBatch(element, (leading_rows(element),))
    return step
