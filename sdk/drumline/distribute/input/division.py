"""The two ways a dataset reaches the replicas: its batches are divided, or each replica takes whole elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import jax

from drumline.distribute.input import spec as specs
from drumline.distribute.input.autoshard import split_rule
from drumline.distribute.input.dataset import Dataset, compute_batch_size
from drumline.distribute.input.explain import InputExplanation, epoch_rows, explain_split, explain_whole
from drumline.distribute.input.padding import PaddingReader
from drumline.distribute.input.splitting import SplitRule
from drumline.distribute.input.steps import (
    CycleReader,
    EachBatchReader,
    EachElementReader,
    StepReader,
    WholeElementReader,
)
from drumline.distribute.input.workers import dataset_of_worker

#: Which batches are filled up: those that do not divide evenly, or all that have fewer rows than the others.
Filled = Literal["none", "uneven", "all"]


class Division(Protocol):
    """How steps come out of datasets."""

    def open(self, iteration: int) -> StepReader:
        """Steps from the first one on; passes over a shuffled dataset differ by their number."""

    def element_spec(self) -> Any:
        """The nest of PerReplicaSpec of a step."""

    def cardinality(self) -> int:
        """The number of steps as the source tells it."""

    def explain(self) -> InputExplanation:
        """Who reads what."""


class DividedBatches:
    """Every global batch is cut by rule A or B. With one replica elements pass through as they are.

    ``pads``: whether replicas may run on no rows in rule B's last step; otherwise such a step is dropped. ``fills``:
    which batches are filled up to the usual shape.
    """

    def __init__(self, source: Dataset, replicas: int, *, pads: bool, fills: Filled = "none") -> None:
        self._source = dataset_of_worker(source, 1, 0)
        self._replicas = replicas
        self._pads = pads
        self._fills = fills
        if self._source.knows_spec:
            self.element_spec()  # elements that can't be divided are refused here, before anything is read

    def open(self, iteration: int) -> StepReader:
        reader = self._open(iteration)
        if self._fills == "none":
            return reader
        only_uneven = self._fills == "uneven"
        global_batch = self._rule()[1] if only_uneven else compute_batch_size(self._source)
        rows = -(-global_batch // self._replicas) if global_batch > 0 else None
        return PaddingReader(reader, rows, self._replicas, only_uneven=only_uneven)

    def _open(self, iteration: int) -> StepReader:
        elements: Any = iter(self._source.at_iteration(iteration))
        if self._replicas == 1:
            return EachElementReader(elements)
        rule, global_batch = self._rule()
        if rule is SplitRule.EACH_BATCH:
            return EachBatchReader(elements, self._replicas)
        return CycleReader(elements, global_batch, self._replicas, pads=self._pads)

    def element_spec(self) -> Any:
        return specs.per_replica_spec(self._source.element_spec, self._replicas)

    def cardinality(self) -> int:
        return self._source.cardinality()

    def explain(self) -> InputExplanation:
        return explain_split(
            self._source, self._rule()[0], compute_batch_size(self._source), self._replicas, pads=self._pads
        )

    def is_always_even(self) -> bool:
        """Whether it is known that every step gives each replica as many rows."""
        rows, _ = epoch_rows(self._source)
        if rows is None:
            return False
        rule, global_batch = self._rule()
        if rule is SplitRule.EACH_BATCH:
            return not (rows % self._replicas).any()
        return global_batch % self._replicas == 0 and int(rows.sum()) % global_batch == 0

    def _rule(self) -> tuple[SplitRule, int]:
        policy, files = self._source.auto_shard_policy, self._source.files
        if split_rule(policy, files, 1) is SplitRule.EACH_BATCH:
            return SplitRule.EACH_BATCH, -1  # not looked for: that may mean to run the user's functions
        global_batch = compute_batch_size(self._source)
        return split_rule(policy, files, global_batch), global_batch


class WholeElements:
    """Replicas take whole elements, in turn from one dataset or each from its own.

    ``pads``: whether replicas may run on no rows in the last step; otherwise such a step is dropped.
    """

    def __init__(self, sources: Sequence[Dataset], replicas: int, *, pads: bool = True) -> None:
        self._sources = list(sources)
        self._replicas = replicas
        self._may_pad = pads

    def open(self, iteration: int) -> StepReader:
        pipelines: list[Any] = [iter(source.at_iteration(iteration)) for source in self._sources]
        return WholeElementReader(pipelines, self._replicas, self._pads)

    def element_spec(self) -> Any:
        return specs.repeat_spec(self._sources[0].element_spec, self._replicas)

    def cardinality(self) -> int:
        counts = [source.cardinality() for source in self._sources]
        if min(counts) < 0:
            return min(counts)
        if len(counts) > 1:
            return max(counts)
        return -(-counts[0] // self._replicas) if self._may_pad else counts[0] // self._replicas

    def explain(self) -> InputExplanation:
        return explain_whole(self._sources, self._replicas)

    def _pads(self) -> bool:
        """Elements of static shape promise that shape to the step, so none without rows may take their place."""
        return self._may_pad and not all(leaf.is_static for leaf in jax.tree.leaves(self._sources[0].element_spec))
