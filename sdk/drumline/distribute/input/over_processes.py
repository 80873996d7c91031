"""Datasets of a program over several processes: what each of them reads.

Under DATA and OFF each process reads everything and keeps the rows of its own replicas, so that a replica gets the rows
that it gets in one process. Under FILE and HINT it reads its own part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from drumline.distribute.cluster.exchange import Exchange
from drumline.distribute.errors import ProcessesDifferError, UnsupportedError
from drumline.distribute.input import spec as specs
from drumline.distribute.input.agreed_steps import AgreedSteps, Own, OwnElements, OwnReader, OwnRows, RowsOfOwnPart
from drumline.distribute.input.autoshard import AutoShardPolicy, effective_policy
from drumline.distribute.input.context import InputContext
from drumline.distribute.input.dataset import Dataset, compute_batch_size
from drumline.distribute.input.division import DividedBatches, Filled, WholeElements
from drumline.distribute.input.explain import InputExplanation, explain_whole, readers
from drumline.distribute.input.ops import UNKNOWN
from drumline.distribute.input.placing import InputTarget
from drumline.distribute.input.steps import Pieces, StepReader, WholeElementReader
from drumline.distribute.input.workers import dataset_of_worker


@dataclass(frozen=True)
class Share:
    """What this process has of a program: its replicas among all, and how it tells the other processes something."""

    replicas: int
    own: tuple[int, ...]
    processes: tuple[int, ...]
    exchange: Exchange

    @classmethod
    def of(cls, target: InputTarget) -> Share:
        """That of a strategy over several processes."""
        assert target.exchange is not None
        return cls(target.num_replicas_in_sync, target.local_replicas, target.processes, target.exchange)

    @property
    def index(self) -> int:
        """The position of this process among all."""
        return self.processes.index(jax.process_index())

    @property
    def context(self) -> InputContext:
        """What a dataset function is told that is called once per process."""
        return InputContext(len(self.processes), self.index, self.replicas)

    @property
    def contexts_of_replicas(self) -> list[InputContext]:
        """What it is told where it is called once per replica of this process."""
        return [InputContext(self.replicas, replica, self.replicas) for replica in self.own]


class _Shared:
    """Steps that all processes take or none. An exchange for each tells it, unless all know it from the beginning."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._exchange = share.exchange.branch("dataset")
        self._is_known = False

    def _agree(self, reader: OwnReader, *, drops: bool) -> StepReader:
        # Of its own for each iterator: each may have a thread that reads ahead.
        return AgreedSteps(reader, None if self._is_known else self._exchange.branch("iterator"), drops=drops)


class DividedOverProcesses(_Shared):
    """Global batches, of which each replica gets its rows."""

    def __init__(self, source: Dataset, target: InputTarget, fills: Filled) -> None:
        super().__init__(Share.of(target))
        workers = len(self._share.processes)
        policy = effective_policy(source.auto_shard_policy, source.files, workers)
        self._reads_part = policy in (AutoShardPolicy.FILE, AutoShardPolicy.HINT)
        self._given = source
        self._source = dataset_of_worker(source, workers, self._share.index) if self._reads_part else source
        self._fills = self._choose_fills(fills)
        self._whole = DividedBatches(self._source, self._share.replicas, pads=self._fills != "none", fills=self._fills)
        length = self._source.cardinality()
        if self._reads_part and not _is_static(self._source):
            length = UNKNOWN
        told = self._share.exchange.tell("distribute_dataset", [policy.name, length, len(self._share.own)])
        self._require_one_policy([policy for policy, *_ in told])
        self._is_known = length != UNKNOWN and all(one == told[0] for one in told)
        if self._reads_part and self._fills != "none":
            self._is_known = False  # the others' rows that count are told step by step
        if not self._reads_part:
            self._require_one_length([length for _, length, _ in told])

    def open(self, iteration: int) -> StepReader:
        if not self._reads_part:
            return self._agree(OwnRows(self._whole.open(iteration), self._share.own), drops=False)
        elements: Any = iter(self._source.at_iteration(iteration))
        fills = self._fills != "none"
        reader = RowsOfOwnPart(elements, self._rows_of_replica(), self._share.own, fills=fills)
        return self._agree(reader, drops=_is_static(self._source))

    def element_spec(self) -> Any:
        return self._whole.element_spec()

    def cardinality(self) -> int:
        return UNKNOWN if self._reads_part else self._whole.cardinality()

    def explain(self) -> InputExplanation:
        told, workers = self._whole.explain(), len(self._share.processes)
        if self._reads_part:
            told = replace(told, last_step=None, steps=None, dropped_rows=None, partial_at=None, partial_step=None)
            return replace(told, readers=readers(self._given, workers))
        each = (
            f"worker {worker} of {workers} reads everything and keeps its replicas' rows" for worker in range(workers)
        )
        return replace(told, readers=tuple(each))

    def _choose_fills(self, fills: Filled) -> Filled:
        """Weights are one more argument of each step: only where some may not count."""
        if fills != "uneven":
            return fills
        if self._reads_part:  # a step that promised its shape is dropped where it has another
            return "none" if _is_static(self._source) else fills
        whole = DividedBatches(self._source, self._share.replicas, pads=False)
        return "none" if whole.is_always_even() else fills

    def _require_one_policy(self, policies: list[str]) -> None:
        if len(set(policies)) > 1:
            raise ProcessesDifferError(
                f"the processes divide one dataset by different auto-shard policies, {', '.join(policies)}; name one "
                "by with_auto_shard_policy"
            )

    def _require_one_length(self, lengths: list[int]) -> None:
        if len(set(lengths)) > 1:
            shown = ", ".join(f"{n} in process {p}" for p, n in zip(self._share.processes, lengths, strict=True))
            raise ProcessesDifferError(
                f"the dataset has another number of batches in each process: {shown}. Each reads the whole dataset and "
                "keeps its replicas' rows; for data that differ use distribute_datasets_from_function"
            )

    def _rows_of_replica(self) -> int:
        rows, replicas = compute_batch_size(self._source), self._share.replicas
        if rows < 1 or rows % replicas:
            what = f"of {rows} rows does not divide" if rows > 0 else "is not known to divide"
            raise UnsupportedError(
                f"each of {len(self._share.processes)} processes reads a part of the dataset, and the global batch "
                f"{what} over {replicas} replicas; batch last, by a multiple of {replicas}, or use policy DATA"
            )
        return rows // replicas


class WholeOverProcesses(_Shared):
    """Each replica takes whole elements of datasets of its process. ``is_common``: one that all processes have."""

    def __init__(
        self, sources: Sequence[Dataset], target: InputTarget, *, pads: bool = True, is_common: bool = False
    ) -> None:
        super().__init__(Share.of(target))
        self._sources, self._pads, self._is_common = list(sources), pads, is_common
        static = all(map(_is_static, self._sources))
        lengths = sorted({source.cardinality() if static else UNKNOWN for source in self._sources})
        spec = str(self._sources[0].element_spec) if static else ""
        told = self._share.exchange.tell("whole elements", [lengths, spec, len(self._share.own)])
        self._is_known = lengths != [UNKNOWN] and len(lengths) == 1 and all(one == told[0] for one in told)

    def open(self, iteration: int) -> StepReader:
        pipelines: list[Any] = [iter(source.at_iteration(iteration)) for source in self._sources]
        taken = range(self._share.replicas) if self._is_common else self._share.own
        own = self._share.own if self._is_common else range(len(taken))
        drops = not self._pads or all(map(_is_static, self._sources))
        return self._agree(OwnElements(WholeElementReader(pipelines, len(taken), lambda: False), own), drops=drops)

    def element_spec(self) -> Any:
        return specs.repeat_spec(self._sources[0].element_spec, self._share.replicas)

    def cardinality(self) -> int:
        return UNKNOWN

    def explain(self) -> InputExplanation:
        return explain_whole(self._sources, self._share.replicas)


class WholeOnShapes(WholeElements):
    """As WholeOverProcesses, on shapes: one process reads for the replicas of all ``hosts`` that a run would have.

    ``sources``: a dataset for each host, whose replicas take turns at it, or one for each replica.
    """

    def __init__(self, sources: Sequence[Dataset], replicas: int, hosts: int) -> None:
        super().__init__(sources, replicas)
        self._hosts = hosts

    def open(self, iteration: int) -> StepReader:
        pipelines: list[Any] = [iter(source.at_iteration(iteration)) for source in self._sources]
        replicas, count = range(self._replicas), len(pipelines)
        in_turn = [pipelines[replica * count // len(replicas)] for replica in replicas]
        reader = OwnElements(WholeElementReader(in_turn, len(replicas), lambda: False), replicas)
        return _StepsOfAllHosts(reader, self._hosts, drops=all(map(_is_static, self._sources)))

    def cardinality(self) -> int:
        return UNKNOWN


class _StepsOfAllHosts(AgreedSteps):
    """The steps that the hosts' processes would agree on, as one process takes them."""

    def __init__(self, reader: OwnReader, hosts: int, *, drops: bool) -> None:
        super().__init__(reader, None, drops=drops)
        self._hosts = hosts

    def __next__(self) -> Any:
        return Pieces(super().__next__().elements)

    def _take(self) -> tuple[Own | None, list[list[str | None] | None], dict[int, int]]:
        own = self._reader.take()
        kinds = [] if own is None else own.kinds
        each = len(kinds) // self._hosts
        told = [kinds[each * host : each * (host + 1)] for host in range(self._hosts)]
        return own, [said if any(said) else None for said in told], {}


def _is_static(source: Dataset) -> bool:
    """Whether elements promise their shape, as far as is known without reading one."""
    return source.knows_spec and all(leaf.is_static for leaf in jax.tree.leaves(source.element_spec))
