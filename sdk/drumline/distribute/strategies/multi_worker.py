"""MultiWorkerMirroredStrategy: TensorFlow's name for a mirrored strategy over the processes of a cluster."""

from __future__ import annotations

from drumline.distribute.cluster import ClusterResolver, initialize
from drumline.distribute.combine.communication import CommunicationOptions
from drumline.distribute.errors import InvalidTypeError
from drumline.distribute.strategies.mirrored import MirroredStrategy


class MultiWorkerMirroredStrategy(MirroredStrategy):
    """Synchronous training on the devices of all processes of a cluster, which it brings together where they are not.

        strategy = dist.MultiWorkerMirroredStrategy()  # before anything uses JAX's devices

    Without a resolver the environment tells the cluster, as for ``dist.initialize``; where it tells of none, or the
    processes have met already (always in a run of Drumline), the strategy is as ``MirroredStrategy()``.
    ``communication_options`` are checked and change nothing: XLA chooses how devices exchange.

    Raises what ``dist.initialize`` raises; InvalidTypeError for what is no resolver, or are no options.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
    ) -> None:
        if communication_options is not None and not isinstance(communication_options, CommunicationOptions):
            raise InvalidTypeError(
                f"communication_options must be dist.CommunicationOptions; got {communication_options!r:.80}"
            )
        initialize(cluster_resolver)
        super().__init__()
        self._resolver = cluster_resolver

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The one that was given, or None."""
        return self._resolver
