"""The processes of a cluster: who they are, what tells them, and how they meet."""

from drumline.distribute.cluster.cluster_spec import ClusterDef, ClusterSpec, JobDef
from drumline.distribute.cluster.gang import Gang
from drumline.distribute.cluster.hostlist import expand_hostlist, expand_tasks_per_node
from drumline.distribute.cluster.initialization import initialize
from drumline.distribute.cluster.kubernetes import ExecutableLocation, KubernetesClusterResolver
from drumline.distribute.cluster.resolver import ClusterResolver, SimpleClusterResolver, UnionClusterResolver
from drumline.distribute.cluster.slurm import SlurmClusterResolver
from drumline.distribute.cluster.tf_config import TFConfigClusterResolver
from drumline.distribute.cluster.tpu import TPUClusterResolver

__all__ = [
    "ClusterDef",
    "ClusterResolver",
    "ClusterSpec",
    "ExecutableLocation",
    "Gang",
    "JobDef",
    "KubernetesClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "UnionClusterResolver",
    "expand_hostlist",
    "expand_tasks_per_node",
    "initialize",
]
