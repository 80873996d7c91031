"""Starts the runner: a fork of the shim with nothing in its hands but its socket and two pipes."""

import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from drumline_worker.host.processes import close_all_fds_but, die_with_parent, set_name
from drumline_worker.host.rundir import RunDirectory, StartOrder
from drumline_worker.host.shim_messages import STACK_SIGNAL
from drumline_worker.host.tally import Tally
from drumline_worker.shim.stacks import Stacks

RunMember = Callable[[RunDirectory, StartOrder, socket.socket, int, Tally], int]
"""Runs the program; gets directory, start order, socket to the shim, descriptor for stacks, tally. Its exit code."""
_SOCKET_BUFFER = 1024 * 1024
_OOM_SCORE = "500"
"""When memory runs out, the program goes before anything of ours."""


@dataclass(frozen=True, slots=True)
class Runner:
    """The runner's process and the ends that the shim holds; descriptors don't block."""

    pid: int
    socket: socket.socket
    stdout: int
    stderr: int
    stacks: Stacks
    tally: Tally = field(default_factory=Tally)
    """What its program has logged, sent or not."""


def start_runner(directory: RunDirectory, order: StartOrder, run_member: RunMember) -> Runner:
    """Forks the runner, whose life `run_member` is, into its own session. It dies with the shim."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    stacks_read, stacks_write = os.pipe()
    shim, tally = os.getpid(), Tally()
    pid = os.fork()
    if pid == 0:
        ends = _Ends(theirs, out_write, err_write, stacks_write, tally)
        _become_runner(shim, ends, directory, order, run_member)
    theirs.close()
    os.close(out_write)
    os.close(err_write)
    os.close(stacks_write)
    for fd in (ours.fileno(), out_read, err_read, stacks_read):
        os.set_blocking(fd, False)
    return Runner(pid, ours, out_read, err_read, Stacks(stacks_read), tally)


@dataclass(frozen=True, slots=True)
class _Ends:
    """What the runner holds."""

    link: socket.socket
    out: int
    err: int
    stacks: int
    tally: Tally


def _become_runner(shim: int, ends: _Ends, directory: RunDirectory, order: StartOrder, run_member: RunMember) -> None:
    """Never returns. Whatever goes wrong goes to stderr, which is the run's log by then."""
    try:
        die_with_parent(shim)  # first: until then a shim that dies leaves a runner that nobody ends
        # A process group of its own, so that the shim can signal all of the program.
        os.setsid()
        os.dup2(ends.out, 1)
        os.dup2(ends.err, 2)
        # The program must not reach the spool, the agents' socket or the launcher's.
        close_all_fds_but({ends.link.fileno(), ends.stacks})
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(STACK_SIGNAL, signal.SIG_IGN)  # until the runner has a handler
        signal.set_wakeup_fd(-1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core of all that JAX maps would fill the disk
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
        set_name("drumline-runner")
        code = run_member(directory, order, ends.link, ends.stacks, ends.tally)
    except BaseException:  # noqa: BLE001 - the last line of defence of this process: it must end here, not in the shim
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
