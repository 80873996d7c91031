"""The runner's process: a fork of the shim with nothing in its hands but its socket and its pipes, and its stacks.

Stacks of a program are its own, as it writes them, and its threads' state as the kernel tells it. A thread that has the
interpreter writes them when asked, so that no frame goes away under it. Where the interpreter is held, and of a program
that is to be killed, the handler of a signal does, in C.
"""

import os
import resource
import signal
import socket
import sys
import traceback
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from drumline.contracts.stacks import MAX_STACKS, STACKS_ENDING, STACKS_HEADING
from drumline_worker.host.messages import STACK_SIGNAL
from drumline_worker.host.rundir import RunDirectory, StartOrder
from drumline_worker.host.system import close_all_fds_but, die_with_parent, kill_quietly, set_name
from drumline_worker.host.tally import BegunTrace, Tally

RunMember = Callable[[RunDirectory, StartOrder, socket.socket, int, Tally], int]
"""Runs the program; gets directory, start order, socket to the shim, descriptor for stacks, tally. Its exit code."""
SendLeft = Callable[[Sequence[BegunTrace], RunDirectory, StartOrder, socket.socket, int, Tally], int]
"""Sends what is complete of the traces that a dead program left; else as `RunMember`."""


class Lives(NamedTuple):
    """What processes of a member do: its runner, and who reads the traces that a dead one left."""

    run_member: RunMember
    send_left: SendLeft


_SOCKET_BUFFER = 1024 * 1024
_OOM_SCORE = "500"
"""When memory runs out, the program goes before anything of ours."""
_OUR_FIRST_FRAME = "/drumline_worker/runner/runner.py"
_MOST_THREADS = 1_024
_MOST_BYTES = 256 * 1024
_HELD_S = 0.3
"""For the thread to begin: the interpreter changes hands every 5 ms where no code in C holds it."""
_ANSWER_S = 1.0
"""For the handler to begin; it needs no interpreter, so that only a process that can't run at all takes longer."""
_QUIET_S = 0.1
"""After the last piece of what it writes: how many threads there are is not told ahead."""
_STOPPED = frozenset("Tt")


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found of a process; `missing` says why there is nothing of Python."""

    python: str
    threads: str
    missing: str = ""


class Stacks:
    """The reading end of the pipe that the runner's handler writes to."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self._raw = bytearray()

    def ask(self, pid: int) -> None:
        """Lets the runner write its stacks; a stopped process is resumed, else no handler would run."""
        kill_quietly(pid, STACK_SIGNAL)
        kill_quietly(pid, signal.SIGCONT)

    def clear(self) -> None:
        """Forgets what came."""
        self._raw.clear()

    def read(self) -> bool:
        """Takes what was written; False at the end of the pipe."""
        try:
            raw = os.read(self.pipe, 65_536)
        except BlockingIOError:
            return True
        self._raw += raw[: max(0, _MOST_BYTES - len(self._raw))]
        return bool(raw)

    def text(self, threads: str, why: str, program: str) -> str:
        """All that was found, for the log. Files of the `program` are named as in its bundle."""
        python = self.python(program) or "The process wrote no Python stacks."
        return f"{STACKS_HEADING}: {why}\n{python}\n\n{threads}\n{STACKS_ENDING}"

    def python(self, program: str) -> str:
        """The stacks of Python that came, the main thread's first; empty where none did."""
        blocks = self._raw.decode("utf-8", "replace").strip().split("\n\n")
        return "\n\n".join(_readable(block, program) for block in reversed(blocks))  # the main thread comes last

    @property
    def size(self) -> int:
        """How many bytes came."""
        return len(self._raw)


def _readable(block: str, program: str) -> str:
    """Without the frames that are ours, below the program's first."""
    lines = block.replace(f'"{program}/', '"').splitlines()
    ours = next((at for at, line in enumerate(lines) if _OUR_FIRST_FRAME in line), len(lines))
    return "\n".join(lines[:ours])


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

    def close(self) -> None:
        """Lets go of its ends."""
        self.socket.close()
        for pipe in (self.stdout, self.stderr, self.stacks.pipe):
            os.close(pipe)


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


class StacksLook:
    """One look at a process, which continues: asks for its stacks, and knows when all of them have come.

    `ask` asks the thread. A process that is stopped is asked for nothing: no thread or handler of it would run.
    """

    def __init__(self, stacks: Stacks, pid: int, program: str, now: float, ask: Callable[[], None]) -> None:
        stacks.clear()
        self._stacks = stacks
        self._pid = pid
        self._program = program
        self._is_stopped = _process_state(pid) in _STOPPED
        self._is_signalled = False
        self._size = 0
        self._due = now
        if not self._is_stopped:
            ask()
            self._due += _HELD_S

    def patience(self, now: float) -> float:
        """Seconds until it is to be looked at again."""
        return max(0.0, self._due - now)

    def finish(self, now: float) -> Seen | None:
        """What was found; None while more may come."""
        self._stacks.read()
        if self._stacks.size > self._size:
            self._size, self._due = self._stacks.size, now + _QUIET_S
        if now < self._due:
            return None
        if not (self._size or self._is_stopped or self._is_signalled):
            self._is_signalled, self._due = True, now + _ANSWER_S
            kill_quietly(self._pid, STACK_SIGNAL)
            return None
        python = self._stacks.python(self._program)[:MAX_STACKS]
        return Seen(python, thread_states(self._pid)[:MAX_STACKS], "" if python else self._why_nothing())

    def _why_nothing(self) -> str:
        if self._is_stopped or _process_state(self._pid) in _STOPPED:  # it may have been stopped since it was asked
            return "The process is stopped (SIGSTOP or a debugger): no handler of it runs. SIGCONT resumes it."
        return (
            f"The process did not answer within {_HELD_S + _ANSWER_S:g} s: it has only just begun, or waits in the "
            "kernel for something that no signal interrupts."
        )


def _process_state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def thread_states(pid: int) -> str:
    """What the kernel says, threads alike in one line: name, state, and the kernel function it sleeps in."""
    try:
        tasks = sorted(int(task) for task in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return f"process {pid} is gone"
    mapped = _Mapped(pid)
    alike = Counter(_state(pid, task, mapped) for task in tasks[:_MOST_THREADS])
    lines = [f"  {count} x {state}" for state, count in alike.items()]
    return "\n".join([f"The kernel about the {len(tasks)} threads of process {pid}:", *lines])


class _Mapped:
    """Which file is mapped where in a process."""

    def __init__(self, pid: int) -> None:
        self._parts: list[tuple[int, int, int, str]] = []
        for line in _lines_of(Path(f"/proc/{pid}/maps")):
            borders, _, offset, _, _, *path = line.split(None, 5)
            begin, _, end = borders.partition("-")
            if path:
                self._parts.append((int(begin, 16), int(end, 16), int(offset, 16), Path(path[0]).name))

    def place(self, address: int) -> str:
        """Such as `libc.so.6+0x91117`: what `addr2line` takes. Empty where nothing with a name is mapped."""
        at = bisect_right(self._parts, address, key=lambda part: part[0]) - 1
        if at < 0 or address >= self._parts[at][1]:
            return ""
        begin, _, offset, name = self._parts[at]
        return f"{name}+0x{address - begin + offset:x}"


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _state(pid: int, task: int, mapped: _Mapped) -> str:
    directory = Path(f"/proc/{pid}/task/{task}")
    try:
        status = directory.joinpath("status").read_text(errors="replace")
    except OSError:
        return "is gone"
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return (
        f"{fields.get('Name', '?')}: {fields.get('State', '?')}{_sleeps_in(directory)}{_stands_at(directory, mapped)}"
    )


def _sleeps_in(directory: Path) -> str:
    try:
        function = directory.joinpath("wchan").read_text().strip()
    except OSError:
        return ""
    return f" in {function}" if function not in ("", "0") else ""


def _stands_at(directory: Path, mapped: _Mapped) -> str:
    """Where in which library it left for the kernel; nothing of a thread that runs, or that we may not look at."""
    try:
        *_, counter = directory.joinpath("syscall").read_text().split()
        place = mapped.place(int(counter, 16))
    except (OSError, ValueError):
        return ""
    return f" at {place}" if place else ""
