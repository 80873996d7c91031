"""What Linux offers to hold on to processes (subreaping, the process tree, proof that it is gone), and its clocks.

The boot clock decides deadlines, the wall clock is for display. What runs in a context where `host_clock` is set sees
that clock: a simulator runs many hosts in one process.
"""

import ctypes
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_RESCAN_S = 0.05
"""A dying tree may fork once more between the scan and the signal, so that it is scanned again."""


def become_subreaper() -> None:
    """Orphans among the descendants become children of this process, not of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when the process `parent`, its parent, dies; also if it died just now."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def set_name(name: str) -> None:
    """What `ps` and `top` show as the command; at most 15 bytes."""
    _LIBC.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def descendants(root: int) -> list[int]:
    """All live or unreaped descendants of `root`, parents before children."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid, parent in _parents():
        children[parent].append(pid)
    found, queue = [], [root]
    while queue:
        young = children[queue.pop()]
        found += young
        queue += young
    return found


def children_of(parent: int) -> list[int]:
    """The direct children of `parent`."""
    return [pid for pid, its_parent in _parents() if its_parent == parent]


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat_fields(int(entry))):
            yield int(entry), int(fields[1])


def processes_below(directory: Path) -> Iterator[tuple[int, str]]:
    """Live processes that work below `directory` or have it in their environment, and below which of its entries."""
    below = os.fsencode(os.path.realpath(directory)) + b"/"
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and start_ticks(int(entry)) is not None:
            _, found, rest = _cwd_and_environ(entry).partition(below)
            if found:
                yield int(entry), os.fsdecode(rest.split(b"/", 1)[0].split(b"\0", 1)[0])


def _cwd_and_environ(pid: str) -> bytes:
    """The working directory and the environment; nothing of a process that is gone or belongs to somebody else."""
    try:
        return os.fsencode(os.readlink(f"/proc/{pid}/cwd")) + b"/\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: with the pid it names a process for good. None if gone."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else None


def cpu_seconds(pids: Sequence[int]) -> float:
    """Processor time that these processes, and those that they have reaped, used so far."""
    fields = [found for pid in pids if (found := _stat_fields(pid)) is not None]
    return sum(sum(map(int, found[11:15])) for found in fields) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids: Sequence[int]) -> int:
    """Memory of these processes that is in RAM; what two of them share counts in both."""
    pages = sum(_resident_pages(pid) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")


def _resident_pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # gone, or about to be: its memory is freed before its entry
        return 0


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on; the name before it may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def kill_quietly(pid: int, number: int) -> bool:
    """Sends a signal; False when the process is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def end_all_children(timeout_s: float, on_reaped: Callable[[int, int], None]) -> bool:
    """Kills and reaps every descendant of this process, which must be a subreaper.

    `on_reaped(pid, wait_status)` is called for each. True is the proof of death: the kernel says that no child is left,
    and a subreaper's descendants all end up as its children. False when something could not be killed in time.
    """
    deadline = time.monotonic() + timeout_s
    # Blocked, a death between the reaping and the wait stays pending and ends the wait at once.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        while True:
            for pid in descendants(os.getpid()):
                kill_quietly(pid, signal.SIGKILL)
            if not reap(on_reaped):
                return True
            if time.monotonic() >= deadline:
                return False
            signal.sigtimedwait({signal.SIGCHLD}, _RESCAN_S)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def reap(on_reaped: Callable[[int, int], None]) -> bool:
    """Reaps what has ended; whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        on_reaped(pid, status)


def close_all_fds_but(keep: set[int]) -> None:
    """Closes every descriptor except `keep` and the three standard ones."""
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        if fd > 2 and fd not in keep:
            _close_quietly(fd)


def _close_quietly(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return  # the directory listing's own descriptor, gone since


class HostClock(Protocol):
    """The clocks of one host."""

    def boottime(self) -> float:
        """Seconds since boot on CLOCK_BOOTTIME, which counts suspend and never jumps, for all processes."""

    def now(self) -> datetime:
        """The wall clock in UTC."""

    def boot_id(self) -> str:
        """What the kernel calls this boot."""


class SystemHostClock:
    """The clocks of this machine."""

    def boottime(self) -> float:
        """CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> datetime:
        """The wall clock in UTC."""
        return datetime.now(UTC)

    def boot_id(self) -> str:
        """The kernel's random id of this boot."""
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


host_clock: ContextVar[HostClock] = ContextVar("host_clock")
_SYSTEM = SystemHostClock()


def boottime() -> float:
    """Seconds since boot on CLOCK_BOOTTIME, which counts suspend and never jumps, for all processes."""
    return host_clock.get(_SYSTEM).boottime()


def now() -> datetime:
    """The wall clock in UTC."""
    return host_clock.get(_SYSTEM).now()


def boot_id() -> str:
    """What the kernel calls this boot."""
    return host_clock.get(_SYSTEM).boot_id()
