"""Programs as forks of a process that has their imports, which take seconds of a processor each time.

`fork_drumline` does what the command line of the same words does, from `main` on, with descriptors, environment and
session of its own. The first launcher and the first Celery child of a worker are forks too (`nursery.py`); those that
take their place later are interpreters, as are all that tests of `drumline up`, of the demo and of the command line
start. `Programs` does what `python FILE FLAGS` does; JAX has started no backend in what it forks.
"""

import atexit
import functools
import itertools
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
from typing import Any, TextIO

_MOST_BYTES = 1 << 20
_SCRIPT = Path(__file__).with_name("nursery.py").resolve()


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
    spares: bool = True,
) -> Fork:
    """Starts `drumline ARGUMENTS` in a session of its own, at work in `directory`; `environment` is added to ours.

    Its stdout and stderr go to `output`; of the descriptors of this process it has `pass_fds`, by the same numbers.
    Without `spares` a worker starts interpreters only: for what the kernel tells of a process since its start.
    """
    spares = spares and list(arguments[:2]) == ["worker", "run"]
    nursery = _nursery(spares)
    request = {
        "arguments": ["drumline", *arguments],
        "environment": {**os.environ, **(environment or {})},
        "directory": str(directory.resolve()),
        "spares": spares,
    }
    return Fork(nursery.ask({**request, "fds": [1, 2, *pass_fds]}, [output, output, *pass_fds]), nursery)


class Program:
    """A running `python FILE FLAGS`, of which a test reads `stdout` as it comes; stderr once it has ended."""

    def __init__(self, nursery: "_Nursery", file: Path, flags: Sequence[str], errors: Path) -> None:
        ours, theirs = os.pipe()
        self.stdout: TextIO = os.fdopen(ours)
        self._errors = errors
        request = {
            "arguments": [str(file), *flags],
            "environment": {**os.environ},
            "directory": str(Path.cwd()),
            "spares": False,
            "fds": [1, 2],
        }
        with errors.open("wb") as sink:
            self._fork = Fork(nursery.ask(request, [theirs, sink.fileno()]), nursery)
        os.close(theirs)

    @property
    def pid(self) -> int:
        return self._fork.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing if it was waited for."""
        self._fork.send_signal(number)

    def end(self, timeout_s: float = 120.0) -> tuple[int, str, str]:
        """Exit status, the rest of stdout, stderr. Raises subprocess.TimeoutExpired, and it is killed."""
        try:
            with self.stdout:
                out = self.stdout.read()
            return self._fork.wait(timeout_s), out, self._errors.read_text()
        finally:
            self.kill()

    def kill(self) -> None:
        """`kill -9`; nothing if it was waited for."""
        self.stdout.close()
        self._fork.kill()
        self._fork.wait()


class Programs:
    """Starts programs that have JAX, `drumline.local` and what else `imports` names."""

    def __init__(self, directory: Path, *, imports: Sequence[str] = ()) -> None:
        """`directory` gets what they write to stderr, and what XLA compiled for one of them."""
        self._directory = directory
        self._numbers = itertools.count()
        cache = {
            "JAX_COMPILATION_CACHE_DIR": str(directory / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "OPENBLAS_NUM_THREADS": "1",  # its threads would be lost in the forks
        }
        self._nursery = _Nursery(["drumline.local", *imports], cache)

    def start(self, file: Path, *flags: str) -> Program:
        """`python FILE FLAGS`."""
        return Program(self._nursery, file, flags, self._directory / f"{next(self._numbers)}.err")

    def close(self) -> None:
        """All of them have ended."""
        self._nursery.close()


class _Nursery:
    """The process that forks (`nursery.py`), seen from a test: `drumline`, or programs that have `imports`."""

    def __init__(self, imports: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self._turn = threading.Lock()
        """One question and its answer at a time: tests start servers in threads."""
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        command = [sys.executable, "-P", str(_SCRIPT), str(theirs.fileno()), *imports]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
        )
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


def _nursery(spares: bool) -> _Nursery:
    """One for each process of tests, from the first fork until the end; one more for spares, which have JAX.

    What it has imported is in all of its forks: an agent without spares has no JAX in memory, as outside of tests.
    """
    with _making:  # a cache lets two threads make one each
        return _make_nursery(spares)


@functools.cache
def _make_nursery(spares: bool) -> _Nursery:
    nursery = _Nursery(environment={"OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"})  # as a launcher has
    atexit.register(nursery.close)
    return nursery
