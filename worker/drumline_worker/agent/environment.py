"""What our child processes find in their environment: what is on a list, never what the agent happens to have."""

import os
from pathlib import Path

_INHERITED = (
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "TPU_VISIBLE_DEVICES",
)  # fmt: skip


def child_environment() -> dict[str, str]:
    """For every child: no credential, no setting of ours."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def launcher_environment(home: Path) -> dict[str, str]:
    """For the launcher, whose environment a program can read in /proc/self/environ.

    OpenBLAS would start its threads on import, and a fork of a process with threads is not whole.
    """
    return {
        "LANG": "C.UTF-8",
        **child_environment(),
        "HOME": str(home),
        "TMPDIR": str(home),
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONNOUSERSITE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
