"""``initialize``: one line by which the processes of a plain script become a gang."""

from __future__ import annotations

import os

import jax

from drumline.distribute.cluster import kubernetes, slurm, tf_config, tpu
from drumline.distribute.cluster.gang import Gang, number_in
from drumline.distribute.cluster.meeting import meet
from drumline.distribute.cluster.resolver import ClusterResolver
from drumline.distribute.errors import ClusterError, InvalidTypeError


def initialize(resolver: ClusterResolver | None = None, *, timeout_s: int = 300) -> Gang:
    """Brings the processes of a cluster together, before anything uses JAX's devices. Returns their gang.

        import drumline.distribute as dist

        dist.initialize()  # srun -n 4 python train.py, a Job on Kubernetes, the hosts of a TPU slice
        jax.devices()  # those of all processes

    Without a resolver the environment decides, in this order: TF_CONFIG, a step of Slurm, a pod that is told its place,
    a host of a TPU slice; else the process is a gang of one. In a run of Drumline, and where the processes have met
    already, it changes nothing. ``timeout_s``: seconds to wait for the others, 1 to 86400.

    Raises what the resolver raises; ClusterError (a RuntimeError), which names who is absent, where the processes don't
    meet in time, where JAX has started already, and in a batch script of Slurm with several tasks that was not started
    by ``srun``. What the process had set before is then as it was, and it may try again.
    """
    if resolver is not None and not isinstance(resolver, ClusterResolver):
        raise InvalidTypeError(f"resolver must be a ClusterResolver; got {resolver!r:.80}")
    if jax.distributed.is_initialized():
        return Gang(None, jax.process_count(), jax.process_index())
    resolver = resolver if resolver is not None else find_resolver()
    found = {name: os.environ.get(name) for name in slurm.WRITTEN}
    try:
        gang = Gang() if resolver is None else resolver.gang()
        meet(gang, timeout_s)
    except BaseException:
        for name, value in found.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        raise
    return gang


def find_resolver() -> ClusterResolver | None:
    """The resolver of what the environment tells; None where it tells of no cluster.

    Raises ClusterError in a batch script of Slurm that has several tasks and was not started by ``srun``.
    """
    if tf_config.VARIABLE in os.environ:
        return tf_config.TFConfigClusterResolver()
    if slurm.is_slurm_step():
        return slurm.SlurmClusterResolver()
    if kubernetes.is_complete():
        return kubernetes.KubernetesClusterResolver()
    if tpu.is_tpu_host():
        return tpu.TPUClusterResolver()
    if kubernetes.is_part_of_gang():  # what is missing is told
        return kubernetes.KubernetesClusterResolver()
    if "SLURM_JOB_ID" in os.environ and os.environ.get("SLURM_NTASKS") and number_in(os.environ, "SLURM_NTASKS") > 1:
        raise ClusterError(
            f"the Slurm job has {os.environ['SLURM_NTASKS']} tasks, and this process is none of them: start it with "
            "srun, or pass SimpleClusterResolver(ClusterSpec({})) to run alone"
        )
    kubernetes.warn_of_unknown_number()
    return None
