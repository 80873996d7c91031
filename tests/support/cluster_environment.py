"""The environment of a process in a cluster, as its launcher sets it, and of no other cluster."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_OF_CLUSTERS = ("SLURM_", "JAX_COORDINATOR", "JAX_NUM_", "JAX_PROCESS_", "KUBE", "LWS_", "MEGASCALE_", "TPU_", "GCE_")
_ALONE = {
    "COORDINATOR_ADDRESS", "COORDINATOR_PORT", "CUDA_VISIBLE_DEVICES", "HOSTNAME", "JOB_COMPLETION_INDEX",
    "NUM_PROCESSES", "POD_NAMESPACE", "PROCESS_ID", "TF_CONFIG",
}  # fmt: skip


@contextmanager
def cluster_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Within the block these variables, and what the code under test sets; afterwards what was there."""
    kept = dict(os.environ)
    for name in kept:
        if name.startswith(_OF_CLUSTERS) or name in _ALONE:
            del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)
