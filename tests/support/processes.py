"""Which processes belong to a deployment under test, and waiting until they are gone."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from support.pace import wall_factor

_POLL_S = 0.02
_LONGEST_POLL_S = 0.3
_REST = 20
"""So many times as long as a look took nobody looks again: what a test waits for needs the processor more than it."""
_MOST_SLOWER = 5
"""Times that a busy machine is waited for longer."""


def wait_until(condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """Returns as soon as `condition` holds; fails the test naming `what` if that takes longer than `timeout_s`.

    The time is that of a machine which has its processors to itself: one that is busy has as much more as it is slower.
    """
    began, limit_s = time.monotonic(), timeout_s
    while True:
        looked = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > began + limit_s:
            limit_s = timeout_s * min(wall_factor(), _MOST_SLOWER)
            if now > began + limit_s:
                raise AssertionError(f"{what}: not within {limit_s:.1f} s")
        time.sleep(min(max(_POLL_S, _REST * (now - looked)), _LONGEST_POLL_S))


def processes_of(data_dir: Path) -> list[psutil.Process]:
    """Every live process that names `data_dir` in its arguments, works in it, or descends from one that does."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if _touches(process, str(data_dir)) and _is_alive(process):
                found[process.pid] = process
                found.update({child.pid: child for child in process.children(recursive=True)})
    return list(found.values())


def kill_all(data_dir: Path, *, timeout_s: float) -> None:
    """`kill -9` for `processes_of(data_dir)`, until none is left; some may have been about to start another."""

    def are_gone() -> bool:
        left = processes_of(data_dir)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return not left

    wait_until(are_gone, timeout_s=timeout_s, what=f"nothing of {data_dir.name} is left")


def name_of(process: psutil.Process) -> str:
    """Its name; empty once it is gone."""
    with contextlib.suppress(psutil.Error):
        return str(process.name())
    return ""


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; empty once it is gone."""
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


def describe(processes: list[psutil.Process]) -> str:
    """One line per process, for a failed assertion."""
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            lines.append(f"{process.pid} (parent {process.ppid()}) {' '.join(process.cmdline())}")
    return "\n".join(lines)


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that are still alive; a zombie is dead."""
    return [process for process in processes if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _touches(process: psutil.Process, directory: str) -> bool:
    return any(directory in word for word in process.cmdline()) or process.cwd().startswith(directory)
