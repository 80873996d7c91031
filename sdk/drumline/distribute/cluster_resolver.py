"""What ``tf.distribute.cluster_resolver`` has: what tells the tasks of a cluster, and which of them this process is.

An example::

    import drumline.distribute as dist

    dist.initialize(dist.cluster_resolver.SlurmClusterResolver())  # srun -n 4 python train.py
"""

from drumline.distribute.cluster import (
    ClusterResolver,
    ExecutableLocation,
    KubernetesClusterResolver,
    SimpleClusterResolver,
    SlurmClusterResolver,
    TFConfigClusterResolver,
    TPUClusterResolver,
    UnionClusterResolver,
    expand_hostlist,
    expand_tasks_per_node,
)

#: TensorFlow's name of it.
UnionResolver = UnionClusterResolver
KubernetesExecutableLocation = ExecutableLocation

__all__ = [
    "ClusterResolver",
    "KubernetesClusterResolver",
    "KubernetesExecutableLocation",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "UnionClusterResolver",
    "UnionResolver",
    "expand_hostlist",
    "expand_tasks_per_node",
]
