"""MultiWorkerMirroredStrategy: TensorFlow's name for a mirrored strategy over the processes of a cluster."""

from __future__ import annotations

import os

from drumline.distribute.cluster import (
    ClusterResolver,
    ClusterSpec,
    Gang,
    SimpleClusterResolver,
    TFConfigClusterResolver,
    initialize,
)
from drumline.distribute.cluster.tf_config import VARIABLE
from drumline.distribute.combine.communication import CommunicationImplementation, CommunicationOptions
from drumline.distribute.errors import InvalidTypeError
from drumline.distribute.strategies.mirrored import MirroredStrategy


class MultiWorkerMirroredStrategy(MirroredStrategy):
    """Synchronous training on the devices of all processes of a cluster, which it brings together where they are not.

        strategy = dist.MultiWorkerMirroredStrategy()  # before anything uses JAX's devices

    Without a resolver the environment tells the cluster, as for ``dist.initialize``; where it tells of none, or the
    processes have met already (always in a run of Drumline), the strategy is as ``MirroredStrategy()``.
    ``communication_options``, and ``communication`` of TensorFlow's experimental class, are checked and change nothing:
    XLA chooses how devices exchange.

    Raises what ``dist.initialize`` raises; InvalidTypeError for what is no resolver, or are no options.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
        *,
        communication: CommunicationImplementation | None = None,
    ) -> None:
        if communication_options is not None and not isinstance(communication_options, CommunicationOptions):
            raise InvalidTypeError(
                f"communication_options must be dist.CommunicationOptions; got {communication_options!r:.80}"
            )
        if communication is not None and not isinstance(communication, CommunicationImplementation):
            raise InvalidTypeError(f"communication must be of dist.CollectiveCommunication; got {communication!r:.80}")
        gang = initialize(cluster_resolver)
        super().__init__()
        self._resolver = cluster_resolver or _resolver_of(gang)

    @property
    def cluster_resolver(self) -> ClusterResolver:
        """The one that was given; else what TF_CONFIG tells, or which worker of a gang that met already this is."""
        return self._resolver


def _resolver_of(gang: Gang) -> ClusterResolver:
    """Tells programs which task they are, as those ask that write files by themselves. Addresses nobody told."""
    if gang.num_processes == 1 or VARIABLE in os.environ:
        return TFConfigClusterResolver()
    return SimpleClusterResolver(ClusterSpec({}), task_type="worker", task_id=gang.process_id)
