"""How rows reach the replicas: datasets, the two splitting rules, and what is kept ready on the devices."""

from drumline.distribute.input.autoshard import SHARD_HINT, AutoShardPolicy
from drumline.distribute.input.context import InputContext
from drumline.distribute.input.dataset import Dataset, compute_batch_size
from drumline.distribute.input.distributed import DistributedDataset, DistributedIterator
from drumline.distribute.input.options import InputOptions, InputReplicationMode, Options
from drumline.distribute.input.parallel import AUTOTUNE
from drumline.distribute.input.spec import ArraySpec, DatasetSpec, PerReplicaSpec
from drumline.distribute.input.splitting import batch_sizes_for_worker
from drumline.distribute.input.workers import per_worker_batches

__all__ = [
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
]
