"""A process that SIGKILL does not get rid of, as one that hangs in the kernel."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_PTRACE_SEIZE = 0x4206


@contextmanager
def holding_on_to(process: psutil.Process) -> Iterator[None]:
    """A tracer keeps the process from being reaped by its parent, as a hang in the kernel would."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    if ptrace(_PTRACE_SEIZE, process.pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace({process.pid})")
    try:
        yield
    finally:
        process.kill()
        os.waitpid(process.pid, 0)
