"""`drumline ...` as forks of a process that has imported server and agent: their imports take seconds of a processor.

A fork does what the command line of the same words does, from `main` on, with descriptors, environment and session of
its own; launchers and Celery children start as ever. Tests of `drumline up`, of the demo and of the command line start
interpreters.
"""

import atexit
import fcntl
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20
_MOST_FDS = 16


@dataclass(eq=False)
class Fork:
    """A running fork; like `subprocess.Popen`, as far as tests need it."""

    pid: int
    _nursery: "_Nursery"
    returncode: int | None = None
    _gone: int = field(init=False)

    def __post_init__(self) -> None:
        self._gone = os.pidfd_open(self.pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing if it has ended: nobody else has its pid before it was waited for."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """`kill -9`."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._gone], [], [], timeout)[0] and timeout is not None:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
            self.returncode = self._nursery.reap(self.pid)
            os.close(self._gone)
        return self.returncode


def fork_drumline(
    arguments: Sequence[str],
    *,
    directory: Path,
    output: int,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> Fork:
    """Starts `drumline ARGUMENTS` in a session of its own, at work in `directory`; `environment` is added to ours.

    Its stdout and stderr go to `output`; of the descriptors of this process it has `pass_fds`, by the same numbers.
    """
    nursery = _nursery()
    request = {
        "arguments": [*arguments],
        "environment": {**os.environ, **(environment or {})},
        "directory": str(directory.resolve()),
    }
    return Fork(nursery.ask({**request, "fds": [1, 2, *pass_fds]}, [output, output, *pass_fds]), nursery)


class _Nursery:
    """The process that forks, seen from a test."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        """One question and its answer at a time: tests start servers in threads."""
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        command = [sys.executable, "-P", str(Path(__file__).resolve()), str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()

    def ask(self, request: Mapping[str, Any], fds: Sequence[int] = ()) -> int:
        with self._turn:
            socket.send_fds(self._link, [json.dumps(request).encode()], fds)
            answer = self._link.recv(_MOST_BYTES)
        assert answer, "the process that forks has ended"
        return int(answer)

    def reap(self, pid: int) -> int:
        return self.ask({"reap": pid})

    def close(self) -> None:
        self._link.close()
        self._process.wait()


_making = threading.Lock()


def _nursery() -> _Nursery:
    """One for each process of tests, from the first fork until the end."""
    with _making:  # a cache lets two threads make one each
        return _make_nursery()


@functools.cache
def _make_nursery() -> _Nursery:
    nursery = _Nursery()
    atexit.register(nursery.close)
    return nursery


def _serve(link: socket.socket) -> None:
    """Forks until the test's process is gone. Returns in the forks, ready for their `main`."""
    while True:
        message, fds, _, _ = socket.recv_fds(link, _MOST_BYTES, _MOST_FDS)
        if not message:
            sys.exit()
        request = json.loads(message)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            link.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            link.close()
            _become(request, fds)
            return
        for fd in fds:
            os.close(fd)
        link.send(str(pid).encode())


def _become(request: Mapping[str, Any], fds: Sequence[int]) -> None:
    os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    above = max(request["fds"]) + 1
    safe = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(safe, request["fds"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    sys.argv[:] = ["drumline", *request["arguments"]]


if __name__ == "__main__":
    from drumline._preload import without_collection

    with without_collection():
        import drumline_server.app.serve  # noqa: F401
        import drumline_server.cli  # noqa: F401
        import drumline_worker.agent.agent  # noqa: F401
        import drumline_worker.agent.reports  # noqa: F401
        import drumline_worker.cli  # noqa: F401
        from drumline.cli.main import main
    _serve(socket.socket(fileno=int(sys.argv[1])))
    main()
