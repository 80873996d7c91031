"""Where the processes of a gang meet: JAX's distributed service."""

from __future__ import annotations

import jax

from drumline.distribute.cluster.gang import Gang
from drumline.distribute.errors import ClusterError, InvalidValueError

#: A day; what waits longer has been forgotten.
_LONGEST_S = 86_400


def meet(gang: Gang, timeout_s: int = 300) -> None:
    """Returns when all processes of the gang are there; at once in a gang of one, or where they met already.

    Raises InvalidValueError for a time out of 1 to 86400 s; ClusterError where they do not meet in it, or JAX has
    started already.
    """
    if not isinstance(timeout_s, int) or not 1 <= timeout_s <= _LONGEST_S:
        raise InvalidValueError(f"timeout_s must be a whole number from 1 to {_LONGEST_S}; got {timeout_s!r:.40}")
    if gang.num_processes == 1 or jax.distributed.is_initialized():
        return
    if gang.coordinator_address is None:
        raise InvalidValueError(f"a gang of {gang.num_processes} processes needs its coordinator's address")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    try:
        jax.distributed.initialize(
            **gang.arguments(), cluster_detection_method="deactivate", initialization_timeout=timeout_s
        )
    except RuntimeError as error:
        raise ClusterError(
            f"process {gang.process_id} of {gang.num_processes} did not meet the others at "
            f"{gang.coordinator_address}: {error}"
        ) from error
