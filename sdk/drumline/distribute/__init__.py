"""tf.distribute's strategies, re-created on JAX.

    import drumline.distribute as dist

    strategy = dist.MirroredStrategy()
    with strategy.scope():
        w = dist.Variable(jnp.zeros((64, 10)), aggregation="mean")

    def step(x, y):
        loss, grad = jax.value_and_grad(loss_fn)(w.value, x, y)
        w.assign_sub(0.1 * dist.all_reduce("mean", grad))
        return loss

    for batch in strategy.distribute_dataset(dataset):
        losses = strategy.run(step, args=batch)
        loss = strategy.reduce("mean", losses, axis=None)

Importing has no side effect: no backend is started, nothing in the environment changes.
"""

from typing import TYPE_CHECKING, Any

import drumline.distribute._requires  # noqa: F401 - first: it names the extra that is missing
from drumline.distribute import cluster_resolver, contrib, errors, observe, tpu, v1
from drumline.distribute.base.enums import ReduceOp, VariableAggregation, VariableSynchronization
from drumline.distribute.base.runtime import set_cpu_devices
from drumline.distribute.checkpoint import Checkpoints
from drumline.distribute.cluster import ClusterSpec, Gang, initialize
from drumline.distribute.combine.communication import CommunicationImplementation, CommunicationOptions
from drumline.distribute.combine.cross_device_ops import (
    AllReduceCrossDeviceOps,
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    ReductionToOneDevice,
)
from drumline.distribute.contexts.context import has_strategy, in_cross_replica_context
from drumline.distribute.running.run_options import RunOptions, ValueContext
from drumline.distribute.running.several_steps import StepsRun
from drumline.distribute.strategies.central_storage import CentralStorageStrategy
from drumline.distribute.strategies.current import experimental_set_strategy, get_strategy, set_strategy
from drumline.distribute.strategies.extended import StrategyExtended
from drumline.distribute.strategies.mirrored import MirroredStrategy
from drumline.distribute.strategies.multi_worker import MultiWorkerMirroredStrategy
from drumline.distribute.strategies.one_device import OneDeviceStrategy
from drumline.distribute.strategies.strategy import Strategy
from drumline.distribute.strategies.tpu import TPUStrategy
from drumline.distribute.tracing.accumulation import accumulate_gradients
from drumline.distribute.tracing.collectives import all_gather, all_reduce, merge_call, replica_key
from drumline.distribute.tracing.global_mean import global_mean
from drumline.distribute.tracing.replica_context import ReplicaContext, get_replica_context
from drumline.distribute.tracing.row_weights import row_weights, rows
from drumline.distribute.tracing.step import mirrored
from drumline.distribute.values.indexed_slices import IndexedSlices
from drumline.distribute.values.per_replica import DistributedValue, Mirrored, PerReplica
from drumline.distribute.variables.distributed import AggregatingVariable, MirroredVariable, SyncOnReadVariable
from drumline.distribute.variables.tree import VariableTree, variables
from drumline.distribute.variables.variable import Variable

if TYPE_CHECKING:
    from drumline.distribute.input import (
        AUTOTUNE,
        SHARD_HINT,
        ArraySpec,
        AutoShardPolicy,
        Dataset,
        DatasetSpec,
        DistributedDataset,
        DistributedIterator,
        InputContext,
        InputOptions,
        InputReplicationMode,
        Options,
        PerReplicaSpec,
        batch_sizes_for_worker,
        compute_batch_size,
        per_worker_batches,
    )

DistributedValues = DistributedValue
CollectiveCommunication = CommunicationImplementation
CollectiveHints = CommunicationOptions

#: Loaded on first use: grain takes a second to import, and a step needs none of it.
_INPUT = frozenset(
    {
        "AUTOTUNE",
        "SHARD_HINT",
        "ArraySpec",
        "AutoShardPolicy",
        "Dataset",
        "DatasetSpec",
        "DistributedDataset",
        "DistributedIterator",
        "InputContext",
        "InputOptions",
        "InputReplicationMode",
        "Options",
        "PerReplicaSpec",
        "batch_sizes_for_worker",
        "compute_batch_size",
        "per_worker_batches",
    }
)


#: What programs that come from TensorFlow look for here, and where it is.
_ELSEWHERE = {
    "TensorSpec": "dist.ArraySpec",
    "compute_average_loss": "dist.global_mean",
    "experimental": "dist itself: dist.CentralStorageStrategy for experimental.CentralStorageStrategy",
}


def __getattr__(name: str) -> Any:
    if name in _INPUT:
        from drumline.distribute import input as distributed_input

        return getattr(distributed_input, name)
    elsewhere = f"; what TensorFlow calls so is {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{elsewhere}")


__all__ = [
    "AUTOTUNE",
    "SHARD_HINT",
    "AggregatingVariable",
    "AllReduceCrossDeviceOps",
    "ArraySpec",
    "AutoShardPolicy",
    "CentralStorageStrategy",
    "Checkpoints",
    "ClusterSpec",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "CrossDeviceOps",
    "Dataset",
    "DatasetSpec",
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValue",
    "DistributedValues",
    "Gang",
    "HierarchicalCopyAllReduce",
    "IndexedSlices",
    "InputContext",
    "InputOptions",
    "InputReplicationMode",
    "Mirrored",
    "MirroredStrategy",
    "MirroredVariable",
    "MultiWorkerMirroredStrategy",
    "NcclAllReduce",
    "OneDeviceStrategy",
    "Options",
    "PerReplica",
    "PerReplicaSpec",
    "ReduceOp",
    "ReductionToOneDevice",
    "ReplicaContext",
    "RunOptions",
    "StepsRun",
    "Strategy",
    "StrategyExtended",
    "SyncOnReadVariable",
    "TPUStrategy",
    "ValueContext",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "VariableTree",
    "accumulate_gradients",
    "all_gather",
    "all_reduce",
    "batch_sizes_for_worker",
    "cluster_resolver",
    "compute_batch_size",
    "contrib",
    "errors",
    "experimental_set_strategy",
    "get_replica_context",
    "get_strategy",
    "global_mean",
    "has_strategy",
    "in_cross_replica_context",
    "initialize",
    "merge_call",
    "mirrored",
    "observe",
    "per_worker_batches",
    "replica_key",
    "row_weights",
    "rows",
    "set_cpu_devices",
    "set_strategy",
    "tpu",
    "v1",
    "variables",
]
