"""The public surface is what is written down, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import drumline.distribute as dist

GUIDE = sorted((Path(__file__).resolve().parents[3] / "docs" / "guide").glob("*.md"))

#: Names of tf.distribute, and ours beside them, by what they are for.
DOCUMENTED = {
    "strategies": "CentralStorageStrategy MirroredStrategy MultiWorkerMirroredStrategy OneDeviceStrategy "
    "Strategy StrategyExtended TPUStrategy "
    "contrib tpu v1",
    "contexts": "ReplicaContext ValueContext experimental_set_strategy get_replica_context get_strategy has_strategy "
    "in_cross_replica_context set_strategy",
    "inside a step": "accumulate_gradients all_gather all_reduce global_mean merge_call mirrored replica_key "
    "row_weights rows",
    "values": "DistributedValue DistributedValues IndexedSlices Mirrored PerReplica ReduceOp",
    "variables": "AggregatingVariable Checkpoints MirroredVariable SyncOnReadVariable Variable VariableAggregation "
    "VariableSynchronization VariableTree variables",
    "cross-device operations": "AllReduceCrossDeviceOps CollectiveCommunication CollectiveHints "
    "CommunicationImplementation CommunicationOptions CrossDeviceOps HierarchicalCopyAllReduce NcclAllReduce "
    "ReductionToOneDevice",
    "input": "AUTOTUNE SHARD_HINT ArraySpec AutoShardPolicy Dataset DatasetSpec DistributedDataset DistributedIterator "
    "InputContext InputOptions InputReplicationMode Options PerReplicaSpec "
    "batch_sizes_for_worker compute_batch_size per_worker_batches",
    "clusters": "ClusterSpec Gang cluster_resolver initialize",
    "running": "RunOptions StepsRun errors observe set_cpu_devices",
}


def test_what_is_exported_is_what_is_documented() -> None:
    documented = {name for names in DOCUMENTED.values() for name in names.split()}
    assert sorted(documented) == sorted(dist.__all__)


def test_every_exported_name_exists_and_is_explained() -> None:
    for name in dist.__all__:
        exported = getattr(dist, name)
        if isinstance(exported, (type, ModuleType)) or callable(exported):
            assert exported.__doc__, name


def test_nothing_else_of_ours_lies_in_the_open() -> None:
    ours = {
        name
        for name, value in vars(dist).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("drumline.distribute")
    }
    assert ours <= set(dist.__all__)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: str(page.name))
def test_every_name_in_the_guide_exists(page: Path) -> None:
    named = set(re.findall(r"(?<![\w./])dist\.([A-Za-z_]\w*)", page.read_text()))
    missing = {name for name in named if not hasattr(dist, name)}
    assert not missing
